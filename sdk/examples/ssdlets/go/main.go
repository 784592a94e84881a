// Filter and aggregate as an SSDlet: lines `group,value` of a file, those with at least a given value, their number and sum by group.
package main

import (
	"bufio"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"pithead/ssdlet"
)

type total struct {
	count int64
	sum   int64
}

var (
	totals = ssdlet.New("idTotals")
	file   = ssdlet.AddFile(totals)
	least  = ssdlet.AddArgument[int64](totals)
	output = ssdlet.AddOutput[ssdlet.Triple[string, int64, int64]](totals)
)

func run() error {
	groups := map[string]*total{}
	lines := bufio.NewScanner(file.File.Reader())
	for number := 1; lines.Scan(); number++ {
		group, text, _ := strings.Cut(lines.Text(), ",")
		value, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return fmt.Errorf("line %d is %q, not group,value", number, lines.Text())
		}
		if value < least.Value {
			continue
		}
		into := groups[group]
		if into == nil {
			into = &total{}
			groups[group] = into
		}
		into.count++
		into.sum += value
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return put(groups)
}

// put puts out the groups in their order.
func put(groups map[string]*total) error {
	names := make([]string, 0, len(groups))
	for name := range groups {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		output.Put(ssdlet.Triple[string, int64, int64]{First: name, Second: groups[name].count, Third: groups[name].sum})
	}
	return nil
}

func init() { totals.Run(run) }

func main() {}
