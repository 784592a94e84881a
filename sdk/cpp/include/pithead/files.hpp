// Files of the drive, key-values, datasets, and lines of text.
#pragma once

#include <algorithm>
#include <optional>
#include <span>

#include "ports.hpp"

namespace pithead {

namespace detail {

class Handle {
  public:
    Handle() = default;
    explicit Handle(uint32_t handle) : handle_(handle) {}
    Handle(Handle&& other) noexcept : handle_(std::exchange(other.handle_, kNone)) {}
    Handle& operator=(Handle&& other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~Handle() {
        if (handle_ != kNone) abi::pithead_close(handle_);
    }
    uint32_t get() const { return handle_; }

  private:
    static constexpr uint32_t kNone = ~0u;
    uint32_t handle_ = kNone;
};

}  // namespace detail

// A place where a pattern begins in a file.
struct Hit {
    uint64_t offset;
    uint32_t pattern;
};

// A file of the drive, open for reads. It comes as an argument or is opened by its name.
class File {
  public:
    File() = default;
    explicit File(detail::Handle handle) : handle_(std::move(handle)) {}

    // Nothing if there is no such file.
    static std::optional<File> open(std::string_view name) {
        const int32_t handle = abi::pithead_file_open(name.data(), static_cast<uint32_t>(name.size()));
        if (handle < 0) return std::nullopt;
        return File(detail::Handle(static_cast<uint32_t>(handle)));
    }

    uint64_t size() const { return abi::pithead_file_size(handle_.get()); }

    // Reads up to `length` bytes at `offset`; fewer only at the end of the file.
    size_t read(uint64_t offset, void* into, size_t length) const {
        size_t done = 0;
        while (done < length) {
            const auto part = static_cast<uint32_t>(std::min(length - done, detail::kCallBytesMax));
            const uint32_t got = abi::pithead_file_read(handle_.get(), offset + done, static_cast<char*>(into) + done, part);
            done += got;
            if (got < part) break;
        }
        return done;
    }

    // The places where patterns begin, found by the drive without a copy of the file's bytes. Calls `found` for each in order.
    template <typename Found>
    void find(std::span<const std::string> patterns, Found found, uint64_t from = 0, uint64_t to = UINT64_MAX) const {
        detail::Buffer encoded;
        for (const auto& pattern : patterns) detail::Column<std::string>::encode(pattern, encoded);
        std::vector<uint64_t> hits(kHits);
        // A further search begins at the last hit, whose offset may have hits of other patterns that did not fit.
        std::vector<uint32_t> seen;
        uint64_t last = UINT64_MAX;
        while (true) {
            const uint32_t count = abi::pithead_file_find(handle_.get(), from, to, encoded.data(),
                                                          static_cast<uint32_t>(encoded.size()), hits.data(), kHits);
            for (uint32_t index = 0; index < count; ++index) {
                const Hit hit{hits[index] & kOffset, static_cast<uint32_t>(hits[index] >> 56)};
                if (hit.offset != last) seen.clear();
                last = hit.offset;
                if (std::find(seen.begin(), seen.end(), hit.pattern) != seen.end()) continue;
                seen.push_back(hit.pattern);
                found(hit);
            }
            if (count < kHits) return;
            from = last;
        }
    }

  private:
    static constexpr uint32_t kHits = 4096;
    static constexpr uint64_t kOffset = (uint64_t{1} << 56) - 1;
    detail::Handle handle_;
};

// Reads a file in order; the drive reads ahead.
class FileStream {
  public:
    explicit FileStream(File&& file, size_t buffer_bytes = 256 << 10) : file_(std::move(file)), buffer_(new char[buffer_bytes]), room_(buffer_bytes) {}

    // Reads up to `length` bytes; 0 at the end of the file.
    size_t read(void* into, size_t length) {
        if (at_ == end_ && !fill()) return 0;
        const size_t part = std::min(length, end_ - at_);
        std::memcpy(into, buffer_.get() + at_, part);
        at_ += part;
        return part;
    }

    // Reads a line without its line feed. False at the end of the file.
    bool getline(std::string& line) {
        line.clear();
        bool some = false;
        while (at_ < end_ || fill()) {
            some = true;
            const char* first = buffer_.get() + at_;
            const void* feed = std::memchr(first, '\n', end_ - at_);
            const size_t length = feed ? static_cast<size_t>(static_cast<const char*>(feed) - first) : end_ - at_;
            line.append(first, length);
            at_ += length + (feed ? 1 : 0);
            if (feed) break;
        }
        return some;
    }

    // The bytes that are there without a copy; empty at the end of the file. They hold until the next call.
    std::span<const char> chunk() {
        if (at_ == end_ && !fill()) return {};
        const std::span<const char> rest(buffer_.get() + at_, end_ - at_);
        at_ = end_;
        return rest;
    }

  private:
    bool fill() {
        at_ = 0;
        end_ = file_.read(offset_, buffer_.get(), room_);
        offset_ += end_;
        return end_ > 0;
    }

    File file_;
    std::unique_ptr<char[]> buffer_;
    size_t room_;
    uint64_t offset_ = 0;
    size_t at_ = 0;
    size_t end_ = 0;
};

// A line of text that can be cut into words in place.
class sstring {
  public:
    using const_iterator = const char*;

    // Cuts at white space: each word ends with a zero byte from now on.
    void tokenize() {
        for (char& one : text_) {
            if (one == ' ' || (one >= '\t' && one <= '\r')) one = '\0';
        }
        next_ = text_.c_str();
    }

    // The next word, cend() behind the last one.
    const_iterator next_token() {
        const char* end = cend();
        while (next_ != end && *next_ == '\0') ++next_;
        const char* word = next_;
        while (next_ != end && *next_ != '\0') ++next_;
        return word;
    }

    const_iterator cend() const { return text_.c_str() + text_.size(); }
    std::string& text() { return text_; }

  private:
    std::string text_;
    const char* next_ = nullptr;
};

inline bool readline(FileStream& stream, sstring& line) { return stream.getline(line.text()); }

namespace detail {

// Asks for an answer of unknown length, again with more room until it fits: it may have grown meanwhile.
template <typename Ask>
bool ask(std::vector<uint8_t>& into, Ask call) {
    if (into.size() < kBatchBytes) into.resize(kBatchBytes);
    int64_t length = call(into.data(), static_cast<uint32_t>(into.size()));
    while (length > static_cast<int64_t>(into.size())) {
        into.resize(static_cast<size_t>(length));
        length = call(into.data(), static_cast<uint32_t>(into.size()));
    }
    into.resize(length < 0 ? 0 : static_cast<size_t>(length));
    return length >= 0;
}

}  // namespace detail

// The value of a key of the drive, nothing if there is none.
inline std::optional<std::vector<uint8_t>> getValue(std::string_view key) {
    std::vector<uint8_t> value;
    const bool there = detail::ask(value, [&](void* into, uint32_t length) {
        return abi::pithead_value_get(key.data(), static_cast<uint32_t>(key.size()), into, length);
    });
    if (!there) return std::nullopt;
    return value;
}

// A dataset's part on this drive.
class Dataset {
  public:
    // Nothing if there is no such dataset or column. Names of columns have line feeds between them; none stands for all.
    static std::optional<Dataset> open(std::string_view name, std::string_view columns = "") {
        const int32_t handle = abi::pithead_dataset_open(name.data(), static_cast<uint32_t>(name.size()), columns.data(),
                                                         static_cast<uint32_t>(columns.size()));
        if (handle < 0) return std::nullopt;
        return Dataset(detail::Handle(static_cast<uint32_t>(handle)));
    }

    // The next record batch. False at the end.
    bool get(ArrowBatch& batch) {
        return detail::ask(batch.ipc, [&](void* into, uint32_t length) {
                   return static_cast<int64_t>(abi::pithead_dataset_get(handle_.get(), into, length));
               }) &&
               !batch.ipc.empty();
    }

  private:
    explicit Dataset(detail::Handle handle) : handle_(std::move(handle)) {}
    detail::Handle handle_;
};

}  // namespace pithead
