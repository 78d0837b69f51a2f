#pragma once

// The tables of all flags of `muster run`, `muster agent`, `muster why` and `muster chaos`: one row
// per flag, from which the rewriting of argv, the parser, --help and (checked by a test)
// docs/flags.md follow. Data only.

#include <span>
#include <string_view>

namespace muster::launcher {

enum class FlagUse : unsigned char {
  kServed,  // Does what it says.
  kInert,   // Taken, with one warning; sets its variable for the workers, which do not read it yet.
  kRefused,  // A usage error with a reason.
};

struct Flag {
  /// All spellings, separated by blanks; the first is the one in messages, the first that starts
  /// with "--" the one for the parser.
  std::string_view names;
  std::string_view values;  // Names of its values, "LO HI"; empty: a switch.
  /// Variables that give its default, separated by blanks: the first one that is set; empty: none.
  std::string_view environment;
  std::string_view builtin;  // Default in words; empty: none.
  std::string_view group;    // Heading in --help.
  std::string_view help;     // kRefused: the reason.
  FlagUse use = FlagUse::kServed;
  /// The workers' variable that it sets if given; a switch sets it to `worker_value`.
  std::string_view worker_variable = {};
  std::string_view worker_value = {};
};

/// The flags of one command, in the order of --help, and what stands around them there.
struct FlagTable {
  std::span<const Flag> flags;
  std::string_view about;
  std::string_view usage;
  std::string_view footer;
};
const FlagTable& RunFlags();
const FlagTable& AgentFlags();
const FlagTable& WhyFlags();
const FlagTable& ChaosFlags();
/// Those of `muster run`.
std::span<const Flag> AllFlags();

/// "-np" of "-np --num-proc", and "--num-proc".
std::string_view ShownName(const Flag& flag);
std::string_view LongName(const Flag& flag);

/// Null if no flag is spelled like this.
const Flag* FindFlag(std::string_view name, const FlagTable& table = RunFlags());

/// 0 for a switch.
int ValueCount(const Flag& flag);

/// Calls with each spelling, or each name of a value.
template <class F>
void ForEachWord(std::string_view words, F&& use) {
  while (!words.empty()) {
    const size_t end = words.find(' ');
    use(words.substr(0, end));
    words = end == std::string_view::npos ? std::string_view() : words.substr(end + 1);
  }
}

}  // namespace muster::launcher
