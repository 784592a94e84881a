// SSDlets in C++: tasks that run in a drive, in the shape of Biscuit's.
//
//     class Doubler : public SSDLet<IN_TYPE<int64_t>, OUT_TYPE<int64_t>> {
//       public:
//         void run() {
//             auto input = getInputPort<0>();
//             auto output = getOutputPort<0>();
//             int64_t value;
//             while (input.get(value)) output.put(2 * value);
//         }
//     };
//     RegisterSSDlet(idDoubler, Doubler)
#pragma once

#include <cstdio>
#include <functional>

#include "files.hpp"

namespace pithead {

template <typename... Types>
struct IN_TYPE {};
template <typename... Types>
struct OUT_TYPE {};
template <typename... Types>
struct ARG_TYPE {};

enum class Level : uint32_t { Debug, Info, Warning, Error };

inline void log(Level level, std::string_view text) {
    abi::pithead_log(static_cast<uint32_t>(level), text.data(), static_cast<uint32_t>(text.size()));
}

// The time of day in nanoseconds since 1970.
inline uint64_t now_ns() { return abi::pithead_time_ns(); }

namespace detail {

// The first of the parts that is made by Kind, Kind<> if none is.
template <template <typename...> typename Kind, typename... Parts>
struct Find {
    using type = Kind<>;
};
template <template <typename...> typename Kind, typename... Types, typename... Rest>
struct Find<Kind, Kind<Types...>, Rest...> {
    using type = Kind<Types...>;
};
template <template <typename...> typename Kind, typename First, typename... Rest>
struct Find<Kind, First, Rest...> : Find<Kind, Rest...> {};

template <typename Kind>
struct Listed;
template <template <typename...> typename Kind, typename... Types>
struct Listed<Kind<Types...>> {
    using tuple = std::tuple<Types...>;
    static constexpr size_t count = sizeof...(Types);
    template <size_t N>
    using at = std::tuple_element_t<N, tuple>;
    static void declare(std::string_view word, std::string& text) {
        ((text += word, text += ' ', text += types<Types>(), text += '\n'), ...);
    }
    template <typename T>
    static std::string types() {
        if constexpr (std::is_same_v<T, File>) return "file";
        else return Row<T>::types();
    }
};

template <typename T>
void take_argument(Cursor& cursor, T& value) {
    if constexpr (std::is_same_v<T, File>) {
        uint32_t handle;
        Column<uint32_t>::decode(cursor, handle);
        value = File(Handle(handle));
    } else {
        Column<T>::decode(cursor, value);
    }
}

struct Registered {
    std::string declaration;
    std::function<void()> run;
};

inline std::vector<Registered>& registry() {
    static std::vector<Registered> all;
    return all;
}

template <typename T>
bool enroll(std::string_view name) {
    registry().push_back({T::declaration(name), [] {
                              T ssdlet;
                              ssdlet.begin();
                              ssdlet.run();
                              ssdlet.end();
                          }});
    return true;
}

}  // namespace detail

// The base of all SSDlets. Its parts are IN_TYPE, OUT_TYPE and ARG_TYPE, each at most once, in any order. A subclass has a public
// function `void run()`.
template <typename... Parts>
class SSDLet {
    using Inputs = detail::Listed<typename detail::Find<IN_TYPE, Parts...>::type>;
    using Outputs = detail::Listed<typename detail::Find<OUT_TYPE, Parts...>::type>;
    using Arguments = detail::Listed<typename detail::Find<ARG_TYPE, Parts...>::type>;

  public:
    template <size_t N>
    auto getInputPort() {
        static_assert(N < Inputs::count, "the SSDlet has no such input port");
        return InputPort<typename Inputs::template at<N>>(*inputs_[N]);
    }

    template <size_t N>
    auto getOutputPort() {
        static_assert(N < Outputs::count, "the SSDlet has no such output port");
        return OutputPort<typename Outputs::template at<N>>(*outputs_[N]);
    }

    template <size_t N>
    auto getInPort() {
        return getInputPort<N>();
    }

    template <size_t N>
    auto getOutPort() {
        return getOutputPort<N>();
    }

    template <size_t N>
    auto& getArguments() {
        static_assert(N < Arguments::count, "the SSDlet has no such argument");
        return std::get<N>(arguments_);
    }

    static std::string declaration(std::string_view name) {
        std::string text = "name " + std::string(name) + "\n";
        Arguments::declare("argument", text);
        Inputs::declare("input", text);
        Outputs::declare("output", text);
        return text;
    }

    void begin() {
        for (uint32_t port = 0; port < Outputs::count; ++port) {
            outputs_.push_back(std::make_unique<detail::OutputState>(port, outputs_));
        }
        for (uint32_t port = 0; port < Inputs::count; ++port) {
            inputs_.push_back(std::make_unique<detail::InputState>(port, outputs_));
        }
        argument_bytes_.resize(abi::pithead_arguments(nullptr, 0));
        abi::pithead_arguments(argument_bytes_.data(), static_cast<uint32_t>(argument_bytes_.size()));
        detail::Cursor cursor{argument_bytes_.data(), argument_bytes_.data() + argument_bytes_.size()};
        std::apply([&](auto&... values) { (detail::take_argument(cursor, values), ...); }, arguments_);
    }

    void end() {
        // Each ends as soon as there is room for what it holds: whoever is to make room for others may wait for that.
        while (true) {
            detail::OutputState* full = nullptr;
            for (auto& output : outputs_) {
                if (!output->try_close()) full = output.get();
            }
            if (full == nullptr) return;
            full->wait();
        }
    }

  private:
    detail::Outputs outputs_;
    std::vector<std::unique_ptr<detail::InputState>> inputs_;
    // Arguments that are views are of these.
    std::vector<uint8_t> argument_bytes_;
    typename Arguments::tuple arguments_;
};

// The name as Biscuit's slides write it, too.
template <typename... Parts>
using SSDlet = SSDLet<Parts...>;

}  // namespace pithead

extern "C" {

__attribute__((export_name("pithead_abi_1"), used)) inline void pithead_abi_1() {}

__attribute__((export_name("pithead_describe"), used)) inline void pithead_describe() {
    for (const auto& one : pithead::detail::registry()) {
        pithead::abi::pithead_declare(one.declaration.data(), static_cast<uint32_t>(one.declaration.size()));
    }
}

__attribute__((export_name("pithead_run"), used)) inline int32_t pithead_run(uint32_t number) {
    pithead::detail::registry().at(number).run();
    // A line of text that no line feed has ended; a module that stays has no exit that would send it.
    std::fflush(nullptr);
    return 0;
}

}  // extern "C"

// Makes a class known under the name by which host programs ask for it.
#define RegisterSSDlet(id, Class) static const bool pithead_registered_##id = ::pithead::detail::enroll<Class>(#id);

// A value that is shared or moved between SSDlets, in the words of Biscuit's examples; here ports copy values.
#define SR(Type) Type
