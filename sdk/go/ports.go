package ssdlet

import "strconv"

// Input takes values of type T in their order.
type Input[T Row] struct {
	port  uint32
	batch []byte
	rest  []byte
}

// AddInput declares the next input port.
func AddInput[T Row](s *SSDlet) *Input[T] {
	s.inputs = append(s.inputs, typesOf[T]())
	return &Input[T]{port: uint32(len(s.inputs) - 1)}
}

// Get waits for the next value. False at the end of the stream.
func (i *Input[T]) Get() (value T, more bool) {
	if len(i.rest) == 0 && !i.take() {
		return value, false
	}
	i.rest = decode(i.rest, &value)
	return value, true
}

func (i *Input[T]) take() bool {
	if i.batch == nil {
		i.batch = make([]byte, batchBytes)
	}
	for {
		at, room := pointer(i.batch)
		length := abiInputGet(i.port, at, room)
		switch {
		case length == again:
			running.flush()
			abiInputWait(i.port)
		case length == cut:
			Fail("the stream of in(" + strconv.Itoa(int(i.port)) + ") was cut off before its end")
		case int(length) > len(i.batch):
			i.batch = make([]byte, length)
		default:
			i.rest = i.batch[:length]
			return length > 0
		}
	}
}

// Close says that no more values are wanted.
func (i *Input[T]) Close() {
	i.rest = nil
	abiInputClose(i.port)
}

type outputState struct {
	types  string
	port   uint32
	closed bool
	bytes  []byte
}

func (o *outputState) flush() bool {
	for !o.closed && len(o.bytes) > 0 {
		at, length := pointer(o.bytes)
		put := abiOutputPut(o.port, at, length)
		if put == again {
			abiOutputWait(o.port, length)
			continue
		}
		o.closed = put != 1
		o.bytes = o.bytes[:0]
	}
	return !o.closed
}

// Output puts out values of type T.
type Output[T Row] struct {
	state *outputState
}

// AddOutput declares the next output port.
func AddOutput[T Row](s *SSDlet) *Output[T] {
	state := &outputState{types: typesOf[T](), port: uint32(len(s.outputs))}
	s.outputs = append(s.outputs, state)
	return &Output[T]{state: state}
}

// Put puts out a value, and waits while the connection is full. False once nobody reads any more: the value is dropped then.
func (o *Output[T]) Put(value T) bool {
	if o.state.closed {
		return false
	}
	o.state.bytes = encode(o.state.bytes, &value)
	if o.state.types == "arrow" || len(o.state.bytes) >= batchBytes {
		return o.state.flush()
	}
	return !o.state.closed
}

// Flush sends what was put so far.
func (o *Output[T]) Flush() bool { return o.state.flush() }
