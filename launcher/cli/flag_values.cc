#include "launcher/cli/flag_values.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <memory>
#include <utility>

namespace muster::launcher {
namespace {

// Given more than once, all of them count.
constexpr std::array<std::string_view, 3> kRepeatable{
    "--network-interface", "--forward-environment", "--join"};
constexpr int kHelpColumn = 34;
constexpr size_t kHelpTextWidth = 65;
// At blanks; CLI11 indents what follows a newline.
std::string Wrap(const std::string& text) {
  std::string wrapped;
  size_t column = 0;
  ForEachWord(text, [&](std::string_view word) {
    if (column > 0) {
      const bool fits = column + 1 + word.size() <= kHelpTextWidth;
      wrapped += fits ? ' ' : '\n';
      column = fits ? column + 1 : 0;
    }
    wrapped += word;
    column += word.size();
  });
  return wrapped;
}

const CLI::Option* FindOption(const CLI::App& app, const Flag& flag) {
  return app.get_option(std::string(LongName(flag)));
}

// Shows the names with one dash, which CLI11 does not know, and the units.
class HelpFormatter final : public CLI::Formatter {
 public:
  explicit HelpFormatter(const FlagTable& table) : table_(table) {}

  std::string make_option_name(const CLI::Option* option, bool /*is_positional*/) const override {
    const Flag* flag = FindFlag(option->get_name(), table_);
    std::string names;
    ForEachWord(flag->names, [&names](std::string_view name) {
      names += (names.empty() ? "" : ", ") + std::string(name);
    });
    return names + (flag->values.empty() ? "" : " " + std::string(flag->values));
  }
  std::string make_option_opts(const CLI::Option* /*option*/) const override { return {}; }
  std::string make_option_desc(const CLI::Option* option) const override {
    const Flag* flag = FindFlag(option->get_name(), table_);
    std::string text(flag->help);
    if (!flag->builtin.empty()) {
      text += " Default: " + std::string(flag->builtin) + ".";
    }
    if (!flag->environment.empty()) {
      text += " [" + std::string(flag->environment) + "]";
    }
    return Wrap(text);
  }
  std::string make_usage(const CLI::App* /*app*/, std::string /*name*/) const override {
    return std::string(table_.usage);
  }

 private:
  const FlagTable& table_;
};

std::unique_ptr<CLI::App> MakeApp(const FlagTable& table) {
  auto app = std::make_unique<CLI::App>(std::string(table.about));
  app->set_help_flag("");  // --help is a flag of ours.
  app->formatter(std::make_shared<HelpFormatter>(table));
  app->get_formatter()->column_width(kHelpColumn);
  app->footer(std::string(table.footer));
  for (const Flag& flag : table.flags) {
    const std::string name(LongName(flag));
    CLI::Option* option = ValueCount(flag) == 0 ? app->add_flag(name) : app->add_option(name);
    if (ValueCount(flag) > 0) {
      option->type_size(ValueCount(flag));
      if (std::find(kRepeatable.begin(), kRepeatable.end(), name) != kRepeatable.end()) {
        option->join(',');
      } else {
        option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
      }
    }
    option->group(std::string(flag.group));
  }
  return app;
}

// CLI11 takes them in reverse order.
Status RunParser(CLI::App& app, std::vector<std::string> flags) {
  std::reverse(flags.begin(), flags.end());
  try {
    app.parse(std::move(flags));
  } catch (const CLI::Error& error) {
    return Status::Invalid(error.what());
  }
  return Status::Ok();
}

std::map<std::string_view, std::string_view> Split(const std::vector<std::string>& environment) {
  std::map<std::string_view, std::string_view> variables;
  for (const std::string_view entry : environment) {
    const size_t equals = entry.find('=');
    if (equals != std::string_view::npos) {
      variables.emplace(entry.substr(0, equals), entry.substr(equals + 1));
    }
  }
  return variables;
}

/// The first of the flag's variables that has a value; else an empty one.
std::pair<std::string_view, std::string_view> FindVariable(
    const Flag& flag, const std::map<std::string_view, std::string_view>& variables) {
  std::pair<std::string_view, std::string_view> found;
  ForEachWord(flag.environment, [&](std::string_view name) {
    const auto it = variables.find(name);
    if (found.second.empty() && it != variables.end()) {
      found = *it;
    }
  });
  return found;
}

bool IsOff(std::string_view value) {
  constexpr std::array<std::string_view, 4> kOff{"0", "false", "no", "off"};
  return std::find(kOff.begin(), kOff.end(), value) != kOff.end();
}

// "1 10" and "1,10" both stand for two values.
std::vector<std::string> EnvironmentValues(const Flag& flag, std::string_view text) {
  std::vector<std::string> values;
  if (ValueCount(flag) == 1) {
    values.emplace_back(text);
  } else if (ValueCount(flag) > 1) {
    std::string words(text);
    std::replace(words.begin(), words.end(), ',', ' ');
    ForEachWord(words, [&values](std::string_view word) {
      if (!word.empty()) {
        values.emplace_back(word);
      }
    });
  }
  return values;
}

Status CheckCount(const Flag& flag, const GivenValue& given) {
  if (static_cast<int>(given.values.size()) != ValueCount(flag)) {
    return Status::Invalid(given.environment + " (the default of " + std::string(ShownName(flag)) +
                           ") needs these values: " + std::string(flag.values));
  }
  return Status::Ok();
}

// --X and --no-X.
Status CheckOpposites(const FlagValues& values) {
  for (const Flag& flag : values.table().flags) {
    const std::string name(LongName(flag));
    const std::string opposite = "--no-" + name.substr(2);
    if (FindFlag(opposite, values.table()) != nullptr && values.HasFlag(name) &&
        values.HasFlag(opposite)) {
      return Status::Invalid(name + " and " + opposite + " contradict each other");
    }
  }
  return Status::Ok();
}

}  // namespace

Result<FlagValues> FlagValues::Parse(const std::vector<std::string>& flags,
                                     const std::vector<std::string>& environment,
                                     const FlagTable& table) {
  const std::unique_ptr<CLI::App> app = MakeApp(table);
  if (const Status parsed = RunParser(*app, flags); !parsed.ok()) {
    return parsed;
  }
  const auto variables = Split(environment);
  FlagValues result;
  result.table_ = &table;
  for (const Flag& flag : table.flags) {
    const CLI::Option* option = FindOption(*app, flag);
    if (option->count() > 0) {
      GivenValue given;
      if (ValueCount(flag) > 0) {
        given.values = option->reduced_results();
      }
      result.given_.emplace(LongName(flag), std::move(given));
      continue;
    }
    const auto variable = FindVariable(flag, variables);
    if (variable.second.empty() || (ValueCount(flag) == 0 && IsOff(variable.second))) {
      continue;
    }
    GivenValue given{EnvironmentValues(flag, variable.second), std::string(variable.first)};
    if (const Status count = CheckCount(flag, given); !count.ok()) {
      return count;
    }
    result.given_.emplace(LongName(flag), std::move(given));
  }
  if (const Status opposites = CheckOpposites(result); !opposites.ok()) {
    return opposites;
  }
  return result;
}

const GivenValue* FlagValues::Find(std::string_view name) const {
  const Flag* flag = FindFlag(name, *table_);
  MUSTER_CHECK(flag != nullptr, std::string(name));
  const auto it = given_.find(LongName(*flag));
  return it == given_.end() ? nullptr : &it->second;
}

bool FlagValues::HasFlag(std::string_view name) const {
  const GivenValue* given = Find(name);
  return given != nullptr && given->environment.empty();
}

void FlagValues::DropFromEnvironment(std::string_view name) {
  const Flag* flag = FindFlag(name, *table_);
  if (!HasFlag(name) && flag != nullptr) {
    given_.erase(LongName(*flag));
  }
}

std::string HelpText(const FlagTable& table) {
  return MakeApp(table)->help();
}

}  // namespace muster::launcher
