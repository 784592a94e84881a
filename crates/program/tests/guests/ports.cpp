// Two ports between two SSDlets, of which the one is filled first and read last.
#include <pithead/ssdlet.hpp>

using namespace pithead;

// Puts out `count` and as many numbers more, then lines, more of both than a connection holds.
class TwoOut : public SSDlet<OUT_TYPE<std::string, int64_t>, ARG_TYPE<int64_t>> {
  public:
    void run() {
        auto lines = getOutputPort<0>();
        auto numbers = getOutputPort<1>();
        for (int64_t number = getArguments<0>(); number >= 0; --number) numbers.put(number);
        for (int line = 0; line < 100'000; ++line) lines.put("line " + std::to_string(line));
    }
};

RegisterSSDlet(idTwoOut, TwoOut)

// Takes all numbers before the first line, and says how many lines there were.
class TwoIn : public SSDlet<IN_TYPE<std::string, int64_t>, OUT_TYPE<int64_t>> {
  public:
    void run() {
        auto lines = getInputPort<0>();
        auto numbers = getInputPort<1>();
        int64_t number = 0, count = 0;
        do {
            if (!numbers.get(number)) fail("a number lacks");
        } while (number > 0);
        std::string line;
        while (lines.get(line)) ++count;
        getOutputPort<0>().put(count);
    }
};

RegisterSSDlet(idTwoIn, TwoIn)
