// An SSDlet: takes numbers, puts out their doubles. Build it with `make`.
#include <pithead/ssdlet.hpp>

using namespace pithead;

class Doubler : public SSDLet<IN_TYPE<int64_t>, OUT_TYPE<int64_t>> {
  public:
    void run() {
        auto input = getInputPort<0>();
        auto output = getOutputPort<0>();
        int64_t value;
        while (input.get(value)) output.put(2 * value);
    }
};

RegisterSSDlet(idDoubler, Doubler)
