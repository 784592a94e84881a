// An SSDlet: takes numbers, puts out their doubles. Build it with `make`.
package main

import "pithead/ssdlet"

var (
	doubler = ssdlet.New("idDoubler")
	input   = ssdlet.AddInput[int64](doubler)
	output  = ssdlet.AddOutput[int64](doubler)
)

func run() error {
	for value, more := input.Get(); more; value, more = input.Get() {
		output.Put(2 * value)
	}
	return nil
}

func init() { doubler.Run(run) }

func main() {}
