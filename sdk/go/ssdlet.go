// Package ssdlet is for SSDlets in Go: tasks that run in a drive, in the shape of Biscuit's.
//
//	var (
//		doubler = ssdlet.New("idDoubler")
//		input   = ssdlet.AddInput[int64](doubler)
//		output  = ssdlet.AddOutput[int64](doubler)
//	)
//
//	func run() error {
//		for value, more := input.Get(); more; value, more = input.Get() {
//			output.Put(2 * value)
//		}
//		return nil
//	}
//
//	func init() { doubler.Run(run) }
//
//	func main() {}
//
// What may go through a port is a [Row]. docs/reference/program-abi.md describes the calls underneath.
package ssdlet

// SSDlet is a task with its ports and arguments, which are added in their order.
type SSDlet struct {
	name      string
	run       func() error
	arguments []argument
	inputs    []string
	outputs   []*outputState
}

type argument interface {
	typeName() string
	take(bytes []byte) []byte
}

var registered []*SSDlet

// running is the SSDlet of this instance; its outputs send what they hold before it waits.
var running *SSDlet

// New registers an SSDlet under the name by which host programs ask for it.
func New(name string) *SSDlet {
	ssdlet := &SSDlet{name: name}
	registered = append(registered, ssdlet)
	return ssdlet
}

// Run says what the SSDlet does. An error ends the application.
func (s *SSDlet) Run(run func() error) { s.run = run }

func (s *SSDlet) declaration() string {
	text := "name " + s.name + "\n"
	for _, one := range s.arguments {
		text += "argument " + one.typeName() + "\n"
	}
	for _, types := range s.inputs {
		text += "input " + types + "\n"
	}
	for _, output := range s.outputs {
		text += "output " + output.types + "\n"
	}
	return text
}

// tryFlush sends what outputs hold as far as there is room now. One that is being sent is left alone. Room for the rest ends the next
// wait.
func (s *SSDlet) tryFlush(sent *outputState) {
	for _, output := range s.outputs {
		if output != sent {
			output.trySend(len(output.bytes))
		}
	}
}

// end ends all outputs, each as soon as there is room for what it holds: whoever is to make room for others may wait for that.
func (s *SSDlet) end() {
	for {
		var full *outputState
		for _, output := range s.outputs {
			if !output.tryEnd() {
				full = output
			}
		}
		if full == nil {
			return
		}
		abiOutputWait(full.port, uint32(len(full.bytes)))
	}
}

// Level says how much a line of the log matters.
type Level uint32

const (
	Debug Level = iota
	Info
	Warning
	Error
)

// Argument is an argument that the host program gives; its Value is there once the SSDlet runs.
type Argument[T Row] struct {
	Value T
}

func (a *Argument[T]) typeName() string { return typesOf[T]() }

func (a *Argument[T]) take(bytes []byte) []byte { return decode(bytes, &a.Value) }

// AddArgument declares the next argument.
func AddArgument[T Row](s *SSDlet) *Argument[T] {
	added := &Argument[T]{}
	s.arguments = append(s.arguments, added)
	return added
}

// FileArgument is a file that the host program names.
type FileArgument struct {
	File *File
}

func (a *FileArgument) typeName() string { return "file" }

func (a *FileArgument) take(bytes []byte) []byte {
	var handle uint32
	rest := decode(bytes, &handle)
	a.File = &File{handle: handle}
	return rest
}

// AddFile declares the next argument, a file.
func AddFile(s *SSDlet) *FileArgument {
	added := &FileArgument{}
	s.arguments = append(s.arguments, added)
	return added
}
