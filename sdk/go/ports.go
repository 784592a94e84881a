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
			running.tryFlush(nil)
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

func (o *outputState) flush() bool { return o.send(len(o.bytes)) }

// send sends so many of the first bytes. False if nobody reads any more.
func (o *outputState) send(length int) bool {
	for !o.trySend(length) {
		// Whoever is to make room may wait for what another output holds.
		running.tryFlush(o)
		abiOutputWait(o.port, uint32(length))
	}
	return !o.closed
}

// trySend is false if there is no room now.
func (o *outputState) trySend(length int) bool {
	if o.closed || length == 0 {
		return true
	}
	at, count := pointer(o.bytes[:length])
	put := abiOutputPut(o.port, at, count)
	if put == again {
		return false
	}
	o.closed = put != 1
	o.bytes = append(o.bytes[:0], o.bytes[length:]...)
	return true
}

func (o *outputState) end() {
	o.flush()
	o.tryEnd()
}

// tryEnd ends the stream if there is room for what was gathered. It is false if there is none now.
func (o *outputState) tryEnd() bool {
	if !o.trySend(len(o.bytes)) {
		return false
	}
	if !o.closed {
		abiOutputClose(o.port)
		o.closed = true
	}
	return true
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
	before := len(o.state.bytes)
	o.state.bytes = encode(o.state.bytes, &value)
	if len(o.state.bytes) > batchBytesMax {
		// A large row is a batch by itself: with those before it, it would be too large for one.
		o.state.send(before)
	}
	if o.state.types == "arrow" || len(o.state.bytes) >= batchBytes {
		return o.state.flush()
	}
	return !o.state.closed
}

// Flush sends what was put so far.
func (o *Output[T]) Flush() bool { return o.state.flush() }

// Close ends the stream early.
func (o *Output[T]) Close() { o.state.end() }
