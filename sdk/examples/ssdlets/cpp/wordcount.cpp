// Word count as three SSDlets, after Biscuit's: a mapper cuts lines into words, a shuffler brings equal words together, and a reducer
// adds them up.
#include <cstdint>
#include <map>
#include <unordered_map>

#include <pithead/ssdlet.hpp>

using namespace pithead;

class Mapper
: public SSDlet<OUT_TYPE<std::pair<std::string, uint32_t>>,
  ARG_TYPE<File>> {
public:
  // SSDlet start function
  void run() {
    // get filename as argument from host-side code
    auto& file = getArguments<0>();
    // get outputPort connected with Shuffler SSDlet
    auto output = getOutputPort<0>();

    // do Mapper tasks
    FileStream fs(std::move(file));
    while (true) {
      sstring line;
      if (!readline(fs, line))
        break;

      line.tokenize();
      sstring::const_iterator word;
      while ((word = line.next_token()) != line.cend()) {
        // send results to Shuffler SSDlet through pipe
        if (!output.put({std::string(word), 1}))
          return;
      }
    }
  }
};
// register 'Mapper' SSDlet
RegisterSSDlet(idMapper, Mapper)

// Adds up the words that are near each other, so that less goes on to the reducer.
class Shuffler
: public SSDLet<IN_TYPE<std::pair<std::string, uint32_t>>,
  OUT_TYPE<std::pair<std::string, uint32_t>>> {
public:
  void run() {
    auto input = getInputPort<0>();
    output = getOutputPort<0>();
    std::pair<std::string, uint32_t> value;
    while (input.get(value)) {
      counts[value.first] += value.second;
      if (counts.size() == words_max && !flush())
        return;
    }
    flush();
  }

private:
  bool flush() {
    for (const auto& count : counts) {
      if (!output->put({count.first, count.second}))
        return false;
    }
    counts.clear();
    return true;
  }

  static constexpr size_t words_max = 1 << 16;
  std::unordered_map<std::string, uint32_t> counts;
  std::optional<OutputPort<std::pair<std::string, uint32_t>>> output;
};
RegisterSSDlet(idShuffler, Shuffler)

// Adds up all words, and puts them out in their order.
class Reducer
: public SSDLet<IN_TYPE<std::pair<std::string, uint32_t>>,
  OUT_TYPE<std::pair<std::string, uint32_t>>> {
public:
  void run() {
    auto input = getInputPort<0>();
    auto output = getOutputPort<0>();
    std::map<std::string, uint32_t> counts;
    std::pair<std::string, uint32_t> value;
    while (input.get(value))
      counts[value.first] += value.second;
    for (const auto& count : counts) {
      if (!output.put({count.first, count.second}))
        return;
    }
  }
};
RegisterSSDlet(idReducer, Reducer)
