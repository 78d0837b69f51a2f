#pragma once

// Writing and reading little-endian integers, strings and lists in a byte string. The reader never
// goes past the end: after the first error every value is empty and ok() is false.
//
// Values; no threads involved.

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

namespace muster::worker {

static_assert(std::endian::native == std::endian::little, "the wire format is the memory format");

class WireWriter {
 public:
  template <class T>
  requires std::is_arithmetic_v<T>
  void Put(T value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void PutString(std::string_view text) {
    Put(static_cast<uint32_t>(text.size()));
    bytes_.append(text);
  }
  void PutCount(size_t count) { Put(static_cast<uint32_t>(count)); }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : rest_(bytes) {}

  template <class T>
  requires std::is_arithmetic_v<T> T Get() {
    T value{};
    if (rest_.size() < sizeof value) {
      Fail();
      return value;
    }
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_.remove_prefix(sizeof value);
    return value;
  }
  std::string GetString() {
    const auto size = Get<uint32_t>();
    if (size > rest_.size()) {
      Fail();
      return "";
    }
    std::string text(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return text;
  }
  /// A number of items of at least `item_bytes` each: never more than the bytes can hold, so that
  /// a lie about the count costs no memory.
  size_t GetCount(size_t item_bytes) {
    const auto count = Get<uint32_t>();
    if (count > rest_.size() / item_bytes) {
      Fail();
      return 0;
    }
    return count;
  }
  /// For values that arrived whole but mean nothing.
  void Fail() {
    ok_ = false;
    rest_ = {};
  }
  bool ok() const { return ok_; }
  bool at_end() const { return rest_.empty(); }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace muster::worker
