// The host program of the word count, after Biscuit's: `wordcount_host FOLDER FILE`.
#include <iostream>

#include <pithead/host.hpp>

using namespace pithead;

int main(int argc, char *argv[]) {
  if (argc != 3) {
    std::cerr << "usage: wordcount_host FOLDER FILE" << std::endl;
    return 2;
  }
  // create an instance of the SSD class that corresponds to an Smart SSD
  SSD ssd(argv[1]);

  // load an SSDlet stored on the Smart SSD
  File file(ssd, "/var/isc/slets/wordcount.wasm");
  module_id_t mid = ssd.loadModule(std::move(file));

  // create an instance of the Application class to manage SSDlets on the Smart SSD
  Application wordcount(ssd);

  // create instances of necessary SSDlet classes included in the loaded module
  auto args = std::make_tuple(File(ssd, argv[2]));
  SSDlet mapper(wordcount, mid, "idMapper", std::move(args));
  SSDlet shuffler(wordcount, mid, "idShuffler");
  SSDlet reducer(wordcount, mid, "idReducer");

  // make connections between SSDlets
  wordcount.connect(mapper.out(0), shuffler.in(0));
  wordcount.connect(shuffler.out(0), reducer.in(0));

  auto port = wordcount.connectTo<std::pair<std::string, uint32_t>>(reducer.out(0));

  // starting application would make all SSDlets begin execution
  wordcount.start();

  std::pair<std::string, uint32_t> value;
  // keep reading as long as output is available
  while (port.get(value))
    std::cout << value.first << "\t" << value.second << std::endl;

  ssd.unloadModule(mid);
  return 0;
}
