// An SSDlet with two outputs. ports.cpp beside it reads them.
package main

import (
	"fmt"

	"pithead/ssdlet"
)

var (
	two     = ssdlet.New("idTwoOut")
	count   = ssdlet.AddArgument[int64](two)
	lines   = ssdlet.AddOutput[string](two)
	numbers = ssdlet.AddOutput[int64](two)
)

// run puts out count and as many numbers more, then lines, more of both than a connection holds.
func run() error {
	for number := count.Value; number >= 0; number-- {
		numbers.Put(number)
	}
	for line := range 100_000 {
		lines.Put(fmt.Sprintf("line %d", line))
	}
	return nil
}

func init() { two.Run(run) }

func main() {}
