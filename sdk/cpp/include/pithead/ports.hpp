// Ports of an SSDlet. Values gather until a batch is worth a host call. What was gathered is sent before the SSDlet waits, as far as there
// is room; room for the rest ends the wait.
#pragma once

#include <memory>

#include "abi.hpp"
#include "rows.hpp"

namespace pithead {

// Ends the application with a message.
[[noreturn]] inline void fail(std::string_view message) {
    abi::pithead_fail(message.data(), static_cast<uint32_t>(message.size()));
}

namespace detail {

inline constexpr size_t kBatchBytes = 64 << 10;
// The most bytes of a batch, and of what one call reads.
inline constexpr size_t kCallBytesMax = 16 << 20;

class OutputState;
// All outputs of an SSDlet.
using Outputs = std::vector<std::unique_ptr<OutputState>>;

class OutputState {
  public:
    OutputState(uint32_t port, Outputs& all) : port_(port), all_(all) {}

    Buffer& buffer() { return buffer_; }

    bool is_full() const { return buffer_.size() >= kBatchBytes; }

    // Sends what was gathered. False if nobody reads any more.
    bool flush() { return send(buffer_.size()); }

    // Sends so many of the first bytes. False if nobody reads any more.
    bool send(size_t bytes) {
        while (!try_send(bytes)) {
            // Whoever is to make room may wait for what another output holds.
            for (auto& other : all_) {
                if (other.get() != this) other->try_flush();
            }
            abi::pithead_output_wait(port_, static_cast<uint32_t>(bytes));
        }
        return open_;
    }

    // Sends what was gathered if there is room for it. False if there is none now.
    bool try_flush() { return try_send(buffer_.size()); }

    // Ends the stream if there is room for what was gathered. False if there is none now.
    bool try_close() {
        if (!try_flush()) return false;
        if (open_) abi::pithead_output_close(port_);
        open_ = false;
        return true;
    }

    void close() {
        flush();
        try_close();
    }

    // Waits until what was gathered has room, or what another output holds.
    void wait() { abi::pithead_output_wait(port_, static_cast<uint32_t>(buffer_.size())); }

    bool is_open() const { return open_; }

  private:
    // False if there is no room now.
    bool try_send(size_t bytes) {
        if (!open_ || bytes == 0) return true;
        const int32_t put = abi::pithead_output_put(port_, buffer_.data(), static_cast<uint32_t>(bytes));
        if (put == abi::kAgain) return false;
        open_ = put == 1;
        buffer_.drop_front(open_ ? bytes : buffer_.size());
        return true;
    }

    uint32_t port_;
    Outputs& all_;
    bool open_ = true;
    Buffer buffer_;
};

class InputState {
  public:
    InputState(uint32_t port, Outputs& outputs) : port_(port), outputs_(outputs) {}

    // The rest of the batch, a new batch if nothing is left of it. Empty at the end of the stream.
    Cursor& cursor() {
        if (cursor_.at == cursor_.end) take();
        return cursor_;
    }

    void close() {
        abi::pithead_input_close(port_);
        cursor_ = {};
    }

  private:
    void make_room(size_t bytes) {
        batch_.reset(new uint8_t[bytes]);
        room_ = bytes;
    }

    void take() {
        if (room_ == 0) make_room(kBatchBytes);
        while (true) {
            const int32_t length = abi::pithead_input_get(port_, batch_.get(), static_cast<uint32_t>(room_));
            if (length == abi::kAgain) {
                for (auto& output : outputs_) output->try_flush();
                abi::pithead_input_wait(port_);
            } else if (length == abi::kCut) {
                fail("the stream of in(" + std::to_string(port_) + ") was cut off before its end");
            } else if (static_cast<size_t>(length) > room_) {
                make_room(static_cast<size_t>(length));
            } else {
                cursor_ = {batch_.get(), batch_.get() + length};
                return;
            }
        }
    }

    uint32_t port_;
    Outputs& outputs_;
    std::unique_ptr<uint8_t[]> batch_;
    size_t room_ = 0;
    Cursor cursor_{};
};

}  // namespace detail

// Takes values of type T in their order.
template <typename T>
class InputPort {
  public:
    explicit InputPort(detail::InputState& state) : state_(&state) {}

    // Waits for the next value. False at the end of the stream.
    bool get(T& value) {
        detail::Cursor& cursor = state_->cursor();
        if (cursor.at == cursor.end) return false;
        detail::Row<T>::decode(cursor, value);
        return true;
    }

    // Says that no more values are wanted.
    void close() { state_->close(); }

  private:
    detail::InputState* state_;
};

// Puts out values of type T.
template <typename T>
class OutputPort {
  public:
    explicit OutputPort(detail::OutputState& state) : state_(&state) {}

    // Waits while the connection is full. False once nobody reads any more, or it was closed: the value is dropped then.
    bool put(const T& value) {
        if (!state_->is_open()) return false;
        const size_t before = state_->buffer().size();
        detail::Row<T>::encode(value, state_->buffer());
        // A large row is a batch by itself: with those before it, it would be too large for one.
        if (state_->buffer().size() > detail::kCallBytesMax) state_->send(before);
        if (std::is_same_v<T, ArrowBatch> || state_->is_full()) return state_->flush();
        return state_->is_open();
    }

    // Sends what was put so far.
    bool flush() { return state_->flush(); }

    // Ends the stream early.
    void close() { state_->close(); }

  private:
    detail::OutputState* state_;
};

}  // namespace pithead
