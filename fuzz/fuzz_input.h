#pragma once

// FuzzInput: cuts the bytes that a fuzzer invents into choices, numbers and pieces, for parsers
// that are fed by a conversation rather than by one text. At the end of the bytes everything is
// zero or empty, so a target always ends. Not for parsers that take bytes as they are.
//
// Values; no threads involved.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

namespace muster::fuzz {

class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}

  bool at_end() const { return rest_.empty(); }

  template <class T>
  requires std::is_integral_v<T> T Number() {
    T value{};
    const std::string_view bytes = Piece(sizeof value);
    std::memcpy(&value, bytes.data(), bytes.size());
    return value;
  }

  /// From 0 to `count` - 1; one byte of input.
  size_t Below(uint8_t count) { return Number<uint8_t>() % count; }

  /// At most `bytes` of them.
  std::string_view Piece(size_t bytes) {
    const std::string_view piece = rest_.substr(0, bytes);
    rest_.remove_prefix(piece.size());
    return piece;
  }

  /// Two bytes of length, then as many bytes or what is left.
  std::string_view Text() { return Piece(Number<uint16_t>()); }
  std::string_view Rest() { return Piece(rest_.size()); }

 private:
  std::string_view rest_;
};

inline std::string_view View(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace muster::fuzz
