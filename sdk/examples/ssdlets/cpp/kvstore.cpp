// The key-value server of Biscuit's slides: commands, keys and values come on three ports.
#include <map>
#include <string>

#include <pithead/ssdlet.hpp>

using namespace pithead;
using namespace std;

class KVStore
: public SSDLet<IN_TYPE<SR(string), SR(string), SR(string)>,
        OUT_TYPE<SR(string)>>
{
public:
    map<string, string> table;

void run()
{
    auto in_command = getInPort<0>();
    auto in_key = getInPort<1>();
    auto in_value = getInPort<2>();
    auto out_value = getOutPort<0>();

    string command, key, value;
    while (true) {
        if (!in_command.get(command))
            break;

        if (command == "get") {
            if (!in_key.get(key))
                break;
            out_value.put(table[key]);
        }
        if (command == "put") {
            if (!in_key.get(key) || !in_value.get(value))
                break;
            table[key] = value;
        }
    }
}
};

RegisterSSDlet(KVStore, KVStore)
