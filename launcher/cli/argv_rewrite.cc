#include "launcher/cli/argv_rewrite.h"

#include <algorithm>
#include <numeric>
#include <string_view>

#include "launcher/cli/flags.h"

namespace muster::launcher {
namespace {

bool IsNegativeNumber(std::string_view word) {
  return word.size() > 1 && word[0] == '-' &&
         word.find_first_not_of("0123456789.", 1) == std::string_view::npos;
}

// As argparse tells them apart: "-" alone, a negative number, and a word with a blank inside (such
// as "-x A", a value of --mpi-args) are no flags; a blank behind '=' does not matter.
bool LooksLikeFlag(std::string_view word) {
  return word.size() > 1 && word[0] == '-' && !IsNegativeNumber(word) &&
         word.substr(0, word.find('=')).find(' ') == std::string_view::npos;
}

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

Status Unknown(const std::string& name, const FlagTable& table) {
  const std::string nearest = NearestFlag(name, table);
  return Status::Invalid("unknown flag " + name +
                         (nearest.empty() ? "; see --help" : "; did you mean " + nearest + "?"));
}

struct Candidate {
  const Flag* flag;
  std::string_view spelling;
};

// Two spellings of one flag are no ambiguity.
Result<const Flag*> FindByPrefix(const std::string& name, const FlagTable& table) {
  std::vector<Candidate> candidates;
  for (const Flag& flag : table.flags) {
    ForEachWord(flag.names, [&](std::string_view spelling) {
      if (spelling.starts_with(name)) {
        candidates.push_back({&flag, spelling});
      }
    });
  }
  if (candidates.empty() || name == "-" || name == "--") {
    return Unknown(name, table);
  }
  const Flag* only = candidates.front().flag;
  std::string list;
  bool ambiguous = false;
  for (const Candidate& candidate : candidates) {
    ambiguous |= candidate.flag != only;
    list += (list.empty() ? "" : ", ") + std::string(candidate.spelling);
  }
  if (ambiguous) {
    return Status::Invalid(name + " is ambiguous: it may be " + list);
  }
  return only;
}

struct Match {
  const Flag* flag = nullptr;
  std::string typed;  // As messages show it.
  bool has_value = false;
  std::string value;  // Attached to the flag.
};

// "-Hlocalhost:2": one-letter flags take their value without a blank.
bool MatchOneLetter(const std::string& word, const FlagTable& table, Match& match) {
  const Flag* flag =
      word.size() > 2 && word[1] != '-' ? FindFlag(word.substr(0, 2), table) : nullptr;
  if (flag == nullptr || ValueCount(*flag) != 1) {
    return false;
  }
  match = {flag, word.substr(0, 2), true, word.substr(2)};
  return true;
}

Result<Match> MatchFlag(const std::string& word, const FlagTable& table) {
  Match match;
  const size_t equals = word.find('=');
  match.typed = word.substr(0, equals);
  match.has_value = equals != std::string::npos;
  match.value = match.has_value ? word.substr(equals + 1) : "";
  match.flag = FindFlag(match.typed, table);
  if (match.flag != nullptr || MatchOneLetter(word, table, match)) {
    return match;
  }
  const Result<const Flag*> found = FindByPrefix(match.typed, table);
  if (!found.ok()) {
    return found.status();
  }
  match.flag = found.value();
  return match;
}

// Takes the values that belong to the flag off the words; `next` is the first after the flag.
Result<std::vector<std::string>> TakeValues(const Match& match,
                                            const std::vector<std::string>& words,
                                            size_t& next) {
  const int count = ValueCount(*match.flag);
  if (match.has_value && count != 1) {
    return Status::Invalid(match.typed +
                           (count == 0 ? " takes no value" : " takes two words, not '='"));
  }
  if (match.has_value) {
    return std::vector<std::string>{match.value};
  }
  std::vector<std::string> values;
  for (int i = 0; i < count; ++i, ++next) {
    if (next >= words.size() || LooksLikeFlag(words[next])) {
      const std::string_view names = match.flag->values;
      return Status::Invalid(match.typed + " needs " + (count == 1 ? "a value: " : "two values: ") +
                             std::string(names) +
                             (next < words.size() ? ", not the flag " + words[next] : ""));
    }
    values.push_back(words[next]);
  }
  return values;
}

void Append(const Flag& flag, std::vector<std::string> values, std::vector<std::string>& flags) {
  const std::string name(LongName(flag));
  if (values.size() == 1) {
    flags.push_back(name + "=" + values[0]);
    return;
  }
  flags.push_back(name);
  flags.insert(flags.end(), values.begin(), values.end());
}

}  // namespace

std::string NearestFlag(const std::string& name, const FlagTable& table) {
  std::string nearest;
  size_t distance_min = std::max<size_t>(2, name.size() / 3) + 1;
  for (const Flag& flag : table.flags) {
    ForEachWord(flag.names, [&](std::string_view spelling) {
      const size_t distance = EditDistance(name, spelling);
      if (distance < distance_min) {
        distance_min = distance;
        nearest = spelling;
      }
    });
  }
  return nearest;
}

Result<RewrittenArgv> RewriteArgv(const std::vector<std::string>& words, const FlagTable& table) {
  RewrittenArgv result;
  size_t next = 0;
  while (next < words.size() && LooksLikeFlag(words[next])) {
    if (words[next] == "--") {
      ++next;
      break;
    }
    const Result<Match> match = MatchFlag(words[next], table);
    if (!match.ok()) {
      return match.status();
    }
    ++next;
    Result<std::vector<std::string>> values = TakeValues(match.value(), words, next);
    if (!values.ok()) {
      return values.status();
    }
    for (const std::string& value : values.value()) {
      if (value.empty()) {
        return Status::Invalid(match.value().typed + ": the value must not be empty");
      }
    }
    Append(*match.value().flag, std::move(values).value(), result.flags);
  }
  result.command.assign(words.begin() + static_cast<std::ptrdiff_t>(next), words.end());
  return result;
}

}  // namespace muster::launcher
