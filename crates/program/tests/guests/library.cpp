// What the library of C++ promises: views of arguments that last, reads of any size, rows up to the largest batch.
#include <pithead/ssdlet.hpp>

using namespace pithead;

class Library : public SSDLet<OUT_TYPE<std::string>, ARG_TYPE<File, std::string_view>> {
  public:
    void run() {
        const std::vector<char> others(1 << 20, 'z');
        auto output = getOutputPort<0>();
        output.put(std::string(getArguments<1>()));
        const File& file = getArguments<0>();
        std::vector<char> all(file.size());
        output.put(std::to_string(file.read(0, all.data(), all.size())));
        output.put(std::string((16 << 20) - others.size() / (1 << 18), 'y'));
    }
};

RegisterSSDlet(idLibrary, Library)
