// The host program of the key-value server: `kvstore_host FOLDER`, with lines `put KEY VALUE` and `get KEY` on standard input.
#include <iostream>

#include <pithead/host.hpp>

using namespace pithead;
using std::string;

int main(int argc, char *argv[])
{
    if (argc != 2) {
        std::cerr << "usage: kvstore_host FOLDER" << std::endl;
        return 2;
    }
    SSD ssd(argv[1]);
    module_id_t mid = ssd.loadModule(File(ssd, "/kvstore.wasm"));
    Application app(ssd);

    SSDLet kvstore(app, mid, "KVStore");
    auto out_command = app.connectTo<String>(kvstore.in(0));
    auto out_key = app.connectTo<String>(kvstore.in(1));
    auto out_value = app.connectTo<String>(kvstore.in(2));
    auto in_result = app.connectTo<String>(kvstore.out(0));
    app.start();

    string command, key, value;
    while (std::cin >> command) {
        if (command == "get") {
            out_command.put(command);
            std::cin >> key;
            out_key.put(key);
            in_result.get(value);
            std::cout << value << std::endl;
        } else if (command == "put") {
            out_command.put(command);
            std::cin >> key >> value;
            out_key.put(key);
            out_value.put(value);
        }
        else break;
    }
    return 0;
}
