package ssdlet

import (
	"encoding/binary"
	"math"
)

// Row is what can go through a port: a number, a string, bytes, a [Pair] or a [Triple] of them, or an [ArrowBatch].
type Row any

// ArrowBatch is record batches as the bytes of an Arrow IPC stream with one batch.
type ArrowBatch []byte

// Pair is a row of two values.
type Pair[A, B any] struct {
	First  A
	Second B
}

// Triple is a row of three values.
type Triple[A, B, C any] struct {
	First  A
	Second B
	Third  C
}

// composite is a row of several values.
type composite interface {
	types() string
	encode(bytes []byte) []byte
	decode(bytes []byte) []byte
}

func (*Pair[A, B]) types() string { return typesOf[A]() + "," + typesOf[B]() }

func (p *Pair[A, B]) encode(bytes []byte) []byte { return encode(encode(bytes, &p.First), &p.Second) }

func (p *Pair[A, B]) decode(bytes []byte) []byte { return decode(decode(bytes, &p.First), &p.Second) }

func (*Triple[A, B, C]) types() string { return typesOf[A]() + "," + typesOf[B]() + "," + typesOf[C]() }

func (t *Triple[A, B, C]) encode(bytes []byte) []byte {
	return encode(encode(encode(bytes, &t.First), &t.Second), &t.Third)
}

func (t *Triple[A, B, C]) decode(bytes []byte) []byte {
	return decode(decode(decode(bytes, &t.First), &t.Second), &t.Third)
}

func typesOf[T Row]() string {
	switch row := any(new(T)).(type) {
	case *bool:
		return "bool"
	case *int8:
		return "i8"
	case *int16:
		return "i16"
	case *int32:
		return "i32"
	case *int64:
		return "i64"
	case *uint8:
		return "u8"
	case *uint16:
		return "u16"
	case *uint32:
		return "u32"
	case *uint64:
		return "u64"
	case *float32:
		return "f32"
	case *float64:
		return "f64"
	case *string:
		return "string"
	case *[]byte:
		return "bytes"
	case *ArrowBatch:
		return "arrow"
	case composite:
		return row.types()
	}
	panic("the type cannot go through a port: use a number, a string, []byte, Pair, Triple or ArrowBatch")
}

func encode[T Row](bytes []byte, value *T) []byte {
	order := binary.LittleEndian
	switch value := any(value).(type) {
	case *bool:
		if *value {
			return append(bytes, 1)
		}
		return append(bytes, 0)
	case *int8:
		return append(bytes, byte(*value))
	case *int16:
		return order.AppendUint16(bytes, uint16(*value))
	case *int32:
		return order.AppendUint32(bytes, uint32(*value))
	case *int64:
		return order.AppendUint64(bytes, uint64(*value))
	case *uint8:
		return append(bytes, *value)
	case *uint16:
		return order.AppendUint16(bytes, *value)
	case *uint32:
		return order.AppendUint32(bytes, *value)
	case *uint64:
		return order.AppendUint64(bytes, *value)
	case *float32:
		return order.AppendUint32(bytes, math.Float32bits(*value))
	case *float64:
		return order.AppendUint64(bytes, math.Float64bits(*value))
	case *string:
		return append(order.AppendUint32(bytes, uint32(len(*value))), *value...)
	case *[]byte:
		return append(order.AppendUint32(bytes, uint32(len(*value))), *value...)
	case *ArrowBatch:
		return append(bytes, *value...)
	case composite:
		return value.encode(bytes)
	}
	return bytes
}

// decode takes a value from the front of bytes, which the drive has checked, and returns the rest.
func decode[T Row](bytes []byte, into *T) []byte {
	order := binary.LittleEndian
	switch value := any(into).(type) {
	case *bool:
		*value = bytes[0] == 1
		return bytes[1:]
	case *int8:
		*value = int8(bytes[0])
		return bytes[1:]
	case *int16:
		*value = int16(order.Uint16(bytes))
		return bytes[2:]
	case *int32:
		*value = int32(order.Uint32(bytes))
		return bytes[4:]
	case *int64:
		*value = int64(order.Uint64(bytes))
		return bytes[8:]
	case *uint8:
		*value = bytes[0]
		return bytes[1:]
	case *uint16:
		*value = order.Uint16(bytes)
		return bytes[2:]
	case *uint32:
		*value = order.Uint32(bytes)
		return bytes[4:]
	case *uint64:
		*value = order.Uint64(bytes)
		return bytes[8:]
	case *float32:
		*value = math.Float32frombits(order.Uint32(bytes))
		return bytes[4:]
	case *float64:
		*value = math.Float64frombits(order.Uint64(bytes))
		return bytes[8:]
	case *string:
		end := 4 + order.Uint32(bytes)
		*value = string(bytes[4:end])
		return bytes[end:]
	case *[]byte:
		end := 4 + order.Uint32(bytes)
		*value = append([]byte(nil), bytes[4:end]...)
		return bytes[end:]
	case *ArrowBatch:
		*value = append(ArrowBatch(nil), bytes...)
		return nil
	case composite:
		return value.decode(bytes)
	}
	return nil
}
