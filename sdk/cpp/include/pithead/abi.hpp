// The host calls of the import module `pithead`; docs/reference/program-abi.md describes them. SSDlets use ssdlet.hpp instead.
#pragma once

#include <cstdint>

#define PITHEAD_IMPORT(name) __attribute__((import_module("pithead"), import_name(name)))

namespace pithead::abi {

extern "C" {
PITHEAD_IMPORT("declare") void pithead_declare(const void* text, uint32_t length);
PITHEAD_IMPORT("arguments") uint32_t pithead_arguments(void* into, uint32_t length);
PITHEAD_IMPORT("log") void pithead_log(uint32_t level, const void* text, uint32_t length);
PITHEAD_IMPORT("fail") [[noreturn]] void pithead_fail(const void* text, uint32_t length);
PITHEAD_IMPORT("time_ns") uint64_t pithead_time_ns();
PITHEAD_IMPORT("random") void pithead_random(void* into, uint32_t length);
PITHEAD_IMPORT("yield") void pithead_yield();
PITHEAD_IMPORT("input_get") int32_t pithead_input_get(uint32_t port, void* into, uint32_t length);
PITHEAD_IMPORT("input_wait") void pithead_input_wait(uint32_t port);
PITHEAD_IMPORT("input_close") void pithead_input_close(uint32_t port);
PITHEAD_IMPORT("output_put") int32_t pithead_output_put(uint32_t port, const void* bytes, uint32_t length);
PITHEAD_IMPORT("output_wait") void pithead_output_wait(uint32_t port, uint32_t length);
PITHEAD_IMPORT("output_close") void pithead_output_close(uint32_t port);
PITHEAD_IMPORT("file_open") int32_t pithead_file_open(const void* name, uint32_t length);
PITHEAD_IMPORT("file_size") uint64_t pithead_file_size(uint32_t file);
PITHEAD_IMPORT("file_read") uint32_t pithead_file_read(uint32_t file, uint64_t offset, void* into, uint32_t length);
PITHEAD_IMPORT("file_find")
uint32_t pithead_file_find(uint32_t file, uint64_t from, uint64_t to, const void* patterns, uint32_t length, uint64_t* hits,
                           uint32_t hits_max);
PITHEAD_IMPORT("close") void pithead_close(uint32_t handle);
PITHEAD_IMPORT("value_get") int64_t pithead_value_get(const void* key, uint32_t key_length, void* into, uint32_t length);
PITHEAD_IMPORT("dataset_open")
int32_t pithead_dataset_open(const void* name, uint32_t length, const void* columns, uint32_t columns_length);
PITHEAD_IMPORT("dataset_get") uint32_t pithead_dataset_get(uint32_t dataset, void* into, uint32_t length);
}

// What input_get and output_put return beside lengths.
inline constexpr int32_t kAgain = -2;
inline constexpr int32_t kCut = -3;

}  // namespace pithead::abi
