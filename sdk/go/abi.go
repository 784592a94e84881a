package ssdlet

import "unsafe"

//go:wasmimport pithead declare
func abiDeclare(text unsafe.Pointer, length uint32)

//go:wasmimport pithead arguments
func abiArguments(into unsafe.Pointer, length uint32) uint32

//go:wasmimport pithead log
func abiLog(level uint32, text unsafe.Pointer, length uint32)

//go:wasmimport pithead fail
func abiFail(text unsafe.Pointer, length uint32)

//go:wasmimport pithead input_get
func abiInputGet(port uint32, into unsafe.Pointer, length uint32) int32

//go:wasmimport pithead input_wait
func abiInputWait(port uint32)

//go:wasmimport pithead input_close
func abiInputClose(port uint32)

//go:wasmimport pithead output_put
func abiOutputPut(port uint32, bytes unsafe.Pointer, length uint32) int32

//go:wasmimport pithead output_wait
func abiOutputWait(port uint32, length uint32)

//go:wasmimport pithead output_close
func abiOutputClose(port uint32)

//go:wasmimport pithead time_ns
func abiTimeNs() uint64

//go:wasmimport pithead file_open
func abiFileOpen(name unsafe.Pointer, length uint32) int32

//go:wasmimport pithead file_size
func abiFileSize(file uint32) uint64

//go:wasmimport pithead file_read
func abiFileRead(file uint32, offset uint64, into unsafe.Pointer, length uint32) uint32

//go:wasmimport pithead file_find
func abiFileFind(file uint32, from uint64, to uint64, patterns unsafe.Pointer, length uint32, hits unsafe.Pointer, hitsMax uint32) uint32

//go:wasmimport pithead close
func abiClose(handle uint32)

//go:wasmimport pithead value_get
func abiValueGet(key unsafe.Pointer, keyLength uint32, into unsafe.Pointer, length uint32) int64

//go:wasmimport pithead dataset_open
func abiDatasetOpen(name unsafe.Pointer, length uint32, columns unsafe.Pointer, columnsLength uint32) int32

//go:wasmimport pithead dataset_get
func abiDatasetGet(dataset uint32, into unsafe.Pointer, length uint32) uint32

// What input_get and output_put return beside lengths.
const (
	again = -2
	cut   = -3
)

const (
	batchBytes    = 64 << 10
	batchBytesMax = 16 << 20
)

func pointer(bytes []byte) (unsafe.Pointer, uint32) {
	return unsafe.Pointer(unsafe.SliceData(bytes)), uint32(len(bytes))
}

func text(of string) (unsafe.Pointer, uint32) {
	return unsafe.Pointer(unsafe.StringData(of)), uint32(len(of))
}

//go:wasmexport pithead_abi_1
func exportABI() {}

//go:wasmexport pithead_describe
func exportDescribe() {
	for _, one := range registered {
		abiDeclare(text(one.declaration()))
	}
}

//go:wasmexport pithead_run
func exportRun(number uint32) int32 {
	running = registered[number]
	bytes := make([]byte, abiArguments(nil, 0))
	abiArguments(pointer(bytes))
	for _, one := range running.arguments {
		bytes = one.take(bytes)
	}
	if err := running.run(); err != nil {
		Fail(err.Error())
	}
	running.end()
	return 0
}

// Fail ends the application with a message.
func Fail(message string) {
	abiFail(text(message))
}

// Now is the time of day in nanoseconds since 1970.
func Now() uint64 { return abiTimeNs() }

// Log writes a line to the drive's log.
func Log(level Level, line string) {
	at, length := text(line)
	abiLog(uint32(level), at, length)
}
