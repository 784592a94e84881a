package ssdlet

import (
	"bufio"
	"io"
	"strings"
	"unsafe"
)

// File is a file of the drive, open for reads.
type File struct {
	handle uint32
	offset uint64
}

// OpenFile opens a file by its name. False if there is none.
func OpenFile(name string) (*File, bool) {
	handle := abiFileOpen(text(name))
	return &File{handle: uint32(handle)}, handle >= 0
}

// Size is the size in bytes.
func (f *File) Size() uint64 { return abiFileSize(f.handle) }

// readBytesMax is the most bytes that one call reads.
const readBytesMax = 16 << 20

// ReadAt reads at an offset.
func (f *File) ReadAt(into []byte, offset int64) (int, error) {
	done := 0
	for done < len(into) {
		part := into[done:min(len(into), done+readBytesMax)]
		at, room := pointer(part)
		length := int(abiFileRead(f.handle, uint64(offset)+uint64(done), at, room))
		done += length
		if length < len(part) {
			return done, io.EOF
		}
	}
	return done, nil
}

// Read reads in order; the drive reads ahead.
func (f *File) Read(into []byte) (int, error) {
	at, room := pointer(into[:min(len(into), readBytesMax)])
	length := abiFileRead(f.handle, f.offset, at, room)
	f.offset += uint64(length)
	if length == 0 && room > 0 {
		return 0, io.EOF
	}
	return int(length), nil
}

// Reader reads in order through a buffer that makes host calls few.
func (f *File) Reader() *bufio.Reader { return bufio.NewReaderSize(f, 256<<10) }

// Close lets go of the file.
func (f *File) Close() { abiClose(f.handle) }

// Hit is a place where a pattern begins in a file.
type Hit struct {
	Offset  uint64
	Pattern int
}

// Find returns where patterns begin, in order, found by the drive without a copy of the file's bytes.
func (f *File) Find(patterns ...string) []Hit {
	const hitsMax = 4096
	var encoded []byte
	for index := range patterns {
		encoded = encode(encoded, &patterns[index])
	}
	var all []Hit
	hits := make([]uint64, hitsMax)
	for {
		// The search goes on at the last hit, where hits of other patterns may not have fitted.
		var from uint64
		if len(all) > 0 {
			from = all[len(all)-1].Offset
		}
		at, length := pointer(encoded)
		count := abiFileFind(f.handle, from, ^uint64(0), at, length, unsafe.Pointer(&hits[0]), hitsMax)
		for len(all) > 0 && all[len(all)-1].Offset == from {
			all = all[:len(all)-1]
		}
		for _, hit := range hits[:count] {
			all = append(all, Hit{Offset: hit & (1<<56 - 1), Pattern: int(hit >> 56)})
		}
		if count < hitsMax {
			return all
		}
	}
}

// Value is the value of a key of the drive. False if there is none.
func Value(key string) ([]byte, bool) {
	into := make([]byte, batchBytes)
	for {
		name, nameLength := text(key)
		at, room := pointer(into)
		length := abiValueGet(name, nameLength, at, room)
		if length < 0 {
			return nil, false
		}
		if length <= int64(room) {
			return into[:length], true
		}
		into = make([]byte, length)
	}
}

// Dataset is a dataset's part on this drive, as record batches.
type Dataset struct {
	handle uint32
	room   int
}

// OpenDataset opens columns of a dataset, all if none is named. False if there is no such dataset or column.
func OpenDataset(name string, columns ...string) (*Dataset, bool) {
	at, length := text(name)
	list, listLength := text(strings.Join(columns, "\n"))
	handle := abiDatasetOpen(at, length, list, listLength)
	return &Dataset{handle: uint32(handle), room: batchBytes}, handle >= 0
}

// Get returns the next record batch. False at the end.
func (d *Dataset) Get() (ArrowBatch, bool) {
	for {
		batch := make([]byte, d.room)
		at, room := pointer(batch)
		length := int(abiDatasetGet(d.handle, at, room))
		if length <= d.room {
			return batch[:length], length > 0
		}
		d.room = length
	}
}
