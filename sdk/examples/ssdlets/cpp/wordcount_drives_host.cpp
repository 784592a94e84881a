// The word count over several drives: `wordcount_drives_host FILE pithead://HOST:PORT …`. A mapper and a shuffler lie at each drive, and
// read its file of that name; one reducer, at the first drive, adds up what all of them send.
#include <deque>
#include <iostream>

#include <pithead/host.hpp>

using namespace pithead;
using Count = std::pair<std::string, uint32_t>;

int main(int argc, char *argv[]) try {
  if (argc < 3) {
    std::cerr << "usage: wordcount_drives_host FILE pithead://HOST:PORT ..." << std::endl;
    return 2;
  }
  std::vector<SSD> ssds;
  std::vector<module_id_t> mids;
  for (int place = 2; place < argc; ++place) {
    ssds.emplace_back(argv[place]);
    // `pithead program load wordcount.wasm` has loaded it
    mids.push_back(ssds.back().loadModule(File(ssds.back(), "wordcount")));
  }

  Application wordcount({ssds.begin(), ssds.end()});
  SSDlet reducer(wordcount, ssds[0], mids[0], "idReducer");
  std::deque<SSDlet> ssdlets;
  for (size_t drive = 0; drive < ssds.size(); ++drive) {
    auto args = std::make_tuple(File(ssds[drive], argv[1]));
    const SSDlet &mapper = ssdlets.emplace_back(wordcount, ssds[drive], mids[drive], "idMapper", args);
    const SSDlet &shuffler = ssdlets.emplace_back(wordcount, ssds[drive], mids[drive], "idShuffler");
    // these two stay in their drive
    wordcount.connect(mapper.out(0), shuffler.in(0));
    // and this goes from drive to drive
    wordcount.connect(shuffler.out(0), reducer.in(0));
  }
  auto port = wordcount.connectTo<Count>(reducer.out(0));
  wordcount.start();

  Count value;
  while (port.get(value))
    std::cout << value.first << "\t" << value.second << std::endl;
  wordcount.wait();
  return 0;
} catch (const Error &error) {
  std::cerr << "error: " << error.what() << std::endl;
  return 1;
}
