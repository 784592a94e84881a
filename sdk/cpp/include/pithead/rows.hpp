// Rows as bytes: which C++ types can go through ports and come as arguments, and how they are written. Used by SSDlets and by host
// programs alike.
#pragma once

#if __cplusplus <= 201703L
#error "pithead needs C++20: compile with -std=c++20"
#endif

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace pithead {

// Any bytes; a std::string is UTF-8 where it goes through a port.
struct Bytes : std::vector<uint8_t> {
    using std::vector<uint8_t>::vector;
};

// Arrow record batches as the bytes of an IPC stream with one batch.
struct ArrowBatch {
    std::vector<uint8_t> ipc;
};

namespace detail {

// Bytes that grow at their end; unlike a std::vector, without zeros that would be written over.
class Buffer {
  public:
    // Room for so many more bytes.
    uint8_t* extend(size_t bytes) {
        if (bytes > capacity_ - size_) [[unlikely]] grow(bytes);
        uint8_t* place = data_.get() + size_;
        size_ += bytes;
        return place;
    }
    const uint8_t* data() const { return data_.get(); }
    size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    void clear() { size_ = 0; }
    // Takes off so many of the first bytes.
    void drop_front(size_t bytes) {
        size_ -= bytes;
        if (size_ > 0) std::memmove(data_.get(), data_.get() + bytes, size_);
    }

  private:
    void grow(size_t bytes) {
        capacity_ = 2 * capacity_ + bytes;
        std::unique_ptr<uint8_t[]> larger(new uint8_t[capacity_]);
        if (size_ > 0) std::memcpy(larger.get(), data_.get(), size_);
        data_ = std::move(larger);
    }

    std::unique_ptr<uint8_t[]> data_;
    size_t size_ = 0;
    size_t capacity_ = 0;
};

struct Cursor {
    const uint8_t* at;
    const uint8_t* end;
};

template <typename T>
struct Column;

template <typename T>
struct Number {
    static void encode(const T& value, Buffer& bytes) {
        std::memcpy(bytes.extend(sizeof(T)), &value, sizeof(T));
    }
    static void decode(Cursor& cursor, T& value) {
        std::memcpy(&value, cursor.at, sizeof(T));
        cursor.at += sizeof(T);
    }
};

template <typename T>
constexpr std::string_view number_name() {
    if constexpr (std::is_same_v<T, bool>) return "bool";
    else if constexpr (std::is_same_v<T, float>) return "f32";
    else if constexpr (std::is_same_v<T, double>) return "f64";
    else if constexpr (std::is_signed_v<T>) return sizeof(T) == 1 ? "i8" : sizeof(T) == 2 ? "i16" : sizeof(T) == 4 ? "i32" : "i64";
    else return sizeof(T) == 1 ? "u8" : sizeof(T) == 2 ? "u16" : sizeof(T) == 4 ? "u32" : "u64";
}

template <typename T>
    requires std::is_arithmetic_v<T>
struct Column<T> : Number<T> {
    static_assert(sizeof(T) <= 8, "numbers have at most 64 bits");
    static constexpr std::string_view name = number_name<T>();
};

template <typename T>
struct Text {
    static void encode(const T& value, Buffer& bytes) {
        const uint32_t length = static_cast<uint32_t>(value.size());
        uint8_t* place = bytes.extend(4 + size_t{length});
        std::memcpy(place, &length, 4);
        if (length > 0) std::memcpy(place + 4, value.data(), length);
    }
    static void decode(Cursor& cursor, T& value) {
        uint32_t length;
        std::memcpy(&length, cursor.at, 4);
        const auto* first = cursor.at + 4;
        if constexpr (std::is_same_v<T, Bytes>) value.assign(first, first + length);
        else value = T(reinterpret_cast<const char*>(first), length);
        cursor.at = first + length;
    }
};

template <>
struct Column<std::string> : Text<std::string> {
    static constexpr std::string_view name = "string";
    static void decode(Cursor& cursor, std::string& value) {
        std::string_view view;
        Text<std::string_view>::decode(cursor, view);
        value.assign(view);
    }
};

// A view into the batch that was taken last; it holds until the next one is.
template <>
struct Column<std::string_view> : Text<std::string_view> {
    static constexpr std::string_view name = "string";
};

template <>
struct Column<Bytes> : Text<Bytes> {
    static constexpr std::string_view name = "bytes";
};

// A row: a single value, or a std::pair or std::tuple of values.
template <typename T>
struct Row {
    static std::string types() { return std::string(Column<T>::name); }
    static void encode(const T& value, Buffer& bytes) { Column<T>::encode(value, bytes); }
    static void decode(Cursor& cursor, T& value) { Column<T>::decode(cursor, value); }
};

template <typename T, typename... Columns>
struct Tuple {
    static std::string types() {
        std::string text;
        ((text += (text.empty() ? "" : ","), text += Column<Columns>::name), ...);
        return text;
    }
    static void encode(const T& row, Buffer& bytes) {
        std::apply([&](const auto&... values) { (Column<Columns>::encode(values, bytes), ...); }, row);
    }
    static void decode(Cursor& cursor, T& row) {
        std::apply([&](auto&... values) { (Column<Columns>::decode(cursor, values), ...); }, row);
    }
};

template <typename... Columns>
struct Row<std::tuple<Columns...>> : Tuple<std::tuple<Columns...>, Columns...> {};

template <typename First, typename Second>
struct Row<std::pair<First, Second>> : Tuple<std::pair<First, Second>, First, Second> {};

// An Arrow batch is a batch by itself: it goes through a port without others beside it.
template <>
struct Row<ArrowBatch> {
    static std::string types() { return "arrow"; }
    static void encode(const ArrowBatch& batch, Buffer& bytes) {
        if (!batch.ipc.empty()) std::memcpy(bytes.extend(batch.ipc.size()), batch.ipc.data(), batch.ipc.size());
    }
    static void decode(Cursor& cursor, ArrowBatch& batch) {
        batch.ipc.assign(cursor.at, cursor.end);
        cursor.at = cursor.end;
    }
};

}  // namespace detail
}  // namespace pithead
