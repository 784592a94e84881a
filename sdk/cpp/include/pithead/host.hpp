// Host programs in C++: applications of SSDlets on one or several drives, in the shape of Biscuit's. Link with -lpithead_ssd.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

#include "rows.hpp"
#include "ssd.h"

namespace pithead {

// What the library could not do, and why.
class Error : public std::runtime_error {
  public:
    Error() : std::runtime_error(pithead_last_error()) {}
};

namespace detail {

// Throws if a call failed: a null pointer, or a negative number.
template <typename T>
T checked(T outcome) {
    if constexpr (std::is_pointer_v<T>) {
        if (outcome == nullptr) throw Error();
    } else if (outcome < 0) {
        throw Error();
    }
    return outcome;
}

template <typename T, void (*Free)(T*)>
struct Freed {
    void operator()(T* handle) const { Free(handle); }
};

template <typename T, void (*Free)(T*)>
using Owned = std::unique_ptr<T, Freed<T, Free>>;

}  // namespace detail

using String = std::string;
using module_id_t = uint64_t;

class SSD;

// The name of a file of the drive.
class File {
  public:
    File(const SSD&, std::string name) : name_(std::move(name)) {}
    const std::string& name() const { return name_; }

  private:
    std::string name_;
};

// A drive: a folder with its files, in this process, or a drive on the network at pithead://HOST:PORT.
class SSD {
  public:
    explicit SSD(const std::string& place) : handle_(detail::checked(pithead_ssd_open(place.c_str()))) {}

    module_id_t loadModule(const File& file) {
        const module_id_t module = pithead_module_load(handle_.get(), file.name().c_str());
        if (module == 0) throw Error();
        return module;
    }

    void unloadModule(module_id_t module) { detail::checked(pithead_module_unload(handle_.get(), module)); }

    PitheadSsd* handle() const { return handle_.get(); }

  private:
    detail::Owned<PitheadSsd, pithead_ssd_close> handle_;
};

// An output port of an SSDlet, which it may outlive.
struct Output {
    PitheadApplication* application;
    int32_t ssdlet;
    uint32_t port;
};

// An input port of an SSDlet, which it may outlive.
struct Input {
    PitheadApplication* application;
    int32_t ssdlet;
    uint32_t port;
};

// Takes values of type T from an SSDlet.
template <typename T>
class Reader {
  public:
    explicit Reader(PitheadReader* handle) : handle_(detail::checked(handle)) {}

    // Waits for the next value. False at the end of the stream.
    bool get(T& value) {
        if (cursor_.at == cursor_.end && !take()) return false;
        detail::Row<T>::decode(cursor_, value);
        return true;
    }

  private:
    bool take() {
        const uint8_t* batch = nullptr;
        size_t length = 0;
        if (detail::checked(pithead_reader_get(handle_.get(), &batch, &length)) == 0) return false;
        cursor_ = {batch, batch + length};
        return true;
    }

    detail::Owned<PitheadReader, pithead_reader_free> handle_;
    detail::Cursor cursor_{};
};

// Sends values of type T to an SSDlet; each is on its way when put returns. Destroying it ends the stream.
template <typename T>
class Writer {
  public:
    explicit Writer(PitheadWriter* handle) : handle_(detail::checked(handle)) {}

    // Waits while the connection is full. False once nobody reads any more.
    bool put(const T& value) {
        row_.clear();
        detail::Row<T>::encode(value, row_);
        return detail::checked(pithead_writer_put(handle_.get(), row_.data(), row_.size())) == 1;
    }

    void close() { handle_.reset(); }

  private:
    detail::Owned<PitheadWriter, pithead_writer_free> handle_;
    detail::Buffer row_;
};

// A graph of SSDlets. Destroying it stops what still runs.
class Application {
  public:
    explicit Application(const SSD& ssd, const std::string& name = "application")
        : ssd_(ssd.handle()), handle_(detail::checked(pithead_application_new(ssd.handle(), name.c_str()))) {}

    // One application over several drives on the network. What fails anywhere ends it at all of them.
    explicit Application(const std::vector<std::reference_wrapper<const SSD>>& ssds, const std::string& name = "application")
        : ssd_(ssds.empty() ? nullptr : ssds.front().get().handle()), handle_(over(ssds, name)) {}

    void connect(const Output& from, const Input& to);

    // Connects a port to this program: an output to read from, or an input to write to.
    template <typename T>
    Reader<T> connectTo(const Output& from);
    template <typename T>
    Writer<T> connectTo(const Input& to);

    void start() { detail::checked(pithead_application_start(handle_.get())); }
    void wait() { detail::checked(pithead_application_wait(handle_.get())); }
    void stop() { detail::checked(pithead_application_stop(handle_.get())); }

    PitheadSsd* ssd() const { return ssd_; }
    PitheadApplication* handle() const { return handle_.get(); }

  private:
    static PitheadApplication* over(const std::vector<std::reference_wrapper<const SSD>>& ssds, const std::string& name) {
        std::vector<const PitheadSsd*> handles;
        for (const SSD& ssd : ssds) handles.push_back(ssd.handle());
        return detail::checked(pithead_application_over(handles.data(), handles.size(), name.c_str()));
    }

    PitheadSsd* ssd_;
    detail::Owned<PitheadApplication, pithead_application_free> handle_;
};

namespace detail {

template <typename T>
void add_argument(const T& value, std::string& types, Buffer& row) {
    types += types.empty() ? "" : ",";
    if constexpr (std::is_same_v<T, File>) {
        types += "file";
        Column<std::string>::encode(value.name(), row);
    } else {
        types += Column<T>::name;
        Column<T>::encode(value, row);
    }
}

}  // namespace detail

// A task that runs in a drive: in the application's first one, or in that which is named, where its module was loaded.
class SSDlet {
  public:
    template <typename... Arguments>
    SSDlet(Application& application, module_id_t module, const std::string& name, const std::tuple<Arguments...>& arguments)
        : SSDlet(application, application.ssd(), module, name, arguments) {}

    template <typename... Arguments>
    SSDlet(Application& application, const SSD& ssd, module_id_t module, const std::string& name,
           const std::tuple<Arguments...>& arguments)
        : SSDlet(application, ssd.handle(), module, name, arguments) {}

    SSDlet(Application& application, const SSD& ssd, module_id_t module, const std::string& name)
        : SSDlet(application, ssd.handle(), module, name, std::tuple<>()) {}

    SSDlet(Application& application, module_id_t module, const std::string& name)
        : SSDlet(application, module, name, std::tuple<>()) {}

    Input in(uint32_t port) const { return {application_, number_, port}; }
    Output out(uint32_t port) const { return {application_, number_, port}; }

    PitheadApplication* application() const { return application_; }
    int32_t number() const { return number_; }

  private:
    template <typename... Arguments>
    SSDlet(Application& application, PitheadSsd* ssd, module_id_t module, const std::string& name,
           const std::tuple<Arguments...>& arguments)
        : application_(application.handle()) {
        std::string types;
        detail::Buffer row;
        std::apply([&](const auto&... values) { (detail::add_argument(values, types, row), ...); }, arguments);
        number_ = detail::checked(
            pithead_ssdlet_new(ssd, application_, module, name.c_str(), types.c_str(), row.data(), row.size()));
    }

    PitheadApplication* application_;
    int32_t number_ = -1;
};

// The name that Biscuit's slides write.
using SSDLet = SSDlet;

inline void Application::connect(const Output& from, const Input& to) {
    detail::checked(pithead_connect(from.application, from.ssdlet, from.port, to.application, to.ssdlet, to.port));
}

template <typename T>
Reader<T> Application::connectTo(const Output& from) {
    return Reader<T>(pithead_reader_new(handle(), from.ssdlet, from.port, detail::Row<T>::types().c_str()));
}

template <typename T>
Writer<T> Application::connectTo(const Input& to) {
    return Writer<T>(pithead_writer_new(handle(), to.ssdlet, to.port, detail::Row<T>::types().c_str()));
}

}  // namespace pithead
