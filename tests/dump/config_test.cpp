// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Where settings come from, what they may be, and what a wrong one is told.
#include "dbg/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "dbg/error.h"
#include "support/log_capture.h"
#include "support/scoped_env.h"

extern char** environ;

namespace dbg {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// An environment with exactly these DUMPER_* variables.
class Environment {
 public:
  Environment(std::initializer_list<std::pair<const char*, const char*>> variables) {
    std::vector<std::string> there;
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string line = *entry;
      if (line.rfind("DUMPER_", 0) == 0) there.push_back(line.substr(0, line.find('=')));
    }
    for (const std::string& name : there) scopes_.emplace_back(name, std::nullopt);
    for (const auto& [name, value] : variables) scopes_.emplace_back(name, value);
  }

 private:
  std::deque<test::ScopedEnv> scopes_;
};

std::string error_of(const std::function<void()>& call) {
  try {
    call();
    return "no error";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

std::string env_error() {
  return error_of([] { DumperConfig::from_env(); });
}

std::string pair_error(const std::string& pair) {
  return error_of([&] { DumperConfig::from_key_values({pair}); });
}

std::string fault_of(const std::string& pair) {
  return error_of([&] { DumperConfig::from_key_values({pair}).validate(); });
}

// --- From the environment ---

TEST(ConfigTest, IsTheDefaultsWithoutVariables) {
  const Environment none({});
  const DumperConfig config = DumperConfig::from_env();
  EXPECT_EQ(config, DumperConfig());
  EXPECT_FALSE(config.enable);
  EXPECT_EQ(config.filter, std::nullopt);
  EXPECT_TRUE(config.enable_output_file && config.enable_output_console && config.enable_value);
  EXPECT_FALSE(config.enable_grad || config.enable_model_value || config.enable_model_grad);
  EXPECT_EQ(config.exp_name, std::nullopt);
  EXPECT_EQ(config.collective_timeout, 60);
  EXPECT_EQ(config.server_port, "-1");
  EXPECT_EQ(config.non_intrusive_mode, "core");
}

TEST(ConfigTest, ReadsBooleansInAllTheirForms) {
  for (const char* const text : {"1", "true", "True", "TRUE", "yes", "Yes", "on", "oN", " 1 "}) {
    const Environment environment({{"DUMPER_ENABLE", text}});
    EXPECT_TRUE(DumperConfig::from_env().enable) << text;
  }
  for (const char* const text : {"0", "false", "False", "no", "NO", "off", "\tOff"}) {
    const Environment environment({{"DUMPER_ENABLE_VALUE", text}});
    EXPECT_FALSE(DumperConfig::from_env().enable_value) << text;
  }
}

TEST(ConfigTest, TakesBlankForUnset) {
  const Environment environment(
      {{"DUMPER_ENABLE_VALUE", ""}, {"DUMPER_COLLECTIVE_TIMEOUT", "  "}, {"DUMPER_FILTER", "\t"}, {"DUMPER_DIR", " "}});
  EXPECT_EQ(DumperConfig::from_env(), DumperConfig());
}

TEST(ConfigTest, KeepsTextAsItStands) {
  const Environment environment({{"DUMPER_EXP_NAME", "1"},
                                 {"DUMPER_GRAFTER_GROUP_NAME", "0"},
                                 {"DUMPER_FILTER", "name == 'x=1'"},
                                 {"DUMPER_DIR", "/a=b/c d"}});
  const DumperConfig config = DumperConfig::from_env();
  EXPECT_EQ(config.exp_name, "1");
  EXPECT_EQ(config.grafter_group_name, "0");
  EXPECT_EQ(config.filter, "name == 'x=1'");
  EXPECT_EQ(config.dir, "/a=b/c d");
}

TEST(ConfigTest, NamesEveryWrongVariableInOneError) {
  const Environment environment({{"DUMPER_ENABLE", "maybe"},
                                 {"DUMPER_COLLECTIVE_TIMEOUT", "1m"},
                                 {"DUMPER_GRAFTER_TIMEOUT", "0"},
                                 {"DUMPER_EXP_NAME", "a/b"},
                                 {"DUMPER_FILTER", "layer_id ="},
                                 {"DUMPER_NON_INTRUSIVE_MODE", "everything"},
                                 {"DUMPER_SERVER_PORT", "http"},
                                 {"DUMPER_CHECKSUM", "0"}});
  const std::string error = env_error();
  EXPECT_THAT(error, HasSubstr("7 settings"));
  EXPECT_THAT(error,
              HasSubstr("DUMPER_ENABLE: expected bool, got 'maybe'; accepted: true, 1, yes, on, false, 0, no, off"));
  EXPECT_THAT(error,
              HasSubstr("DUMPER_COLLECTIVE_TIMEOUT: expected int, got '1m'; accepted: a whole number from 1 to"));
  EXPECT_THAT(error, HasSubstr("DUMPER_GRAFTER_TIMEOUT: expected int, got '0'"));
  EXPECT_THAT(error, HasSubstr("DUMPER_EXP_NAME: got 'a/b', which holds a '/'; accepted: one path component"));
  EXPECT_THAT(error,
              AllOf(HasSubstr("DUMPER_FILTER='layer_id ='"), HasSubstr("docs/filter.md"), HasSubstr("column 10")));
  EXPECT_THAT(
      error, HasSubstr("DUMPER_NON_INTRUSIVE_MODE: got 'everything', which is none of them; accepted: off, core, all"));
  EXPECT_THAT(
      error,
      HasSubstr("DUMPER_SERVER_PORT: got 'http', which is not a port; accepted: a whole number up to 65535, or reuse"));
  EXPECT_THAT(error, Not(HasSubstr("CHECKSUM")));
}

TEST(ConfigTest, RefusesNumbersThatAreNotWhole) {
  for (const char* const text :
       {"1.5", "60s", "0x10", "1e3", "1_000", "--1", "+-1", "99999999999999999999", "2147483648", "-", "0", "-5"}) {
    const Environment environment({{"DUMPER_COLLECTIVE_TIMEOUT", text}});
    EXPECT_THAT(env_error(), HasSubstr(std::string("got '") + text + "'")) << text;
  }
  const Environment environment({{"DUMPER_COLLECTIVE_TIMEOUT", " +90 "}});
  EXPECT_EQ(DumperConfig::from_env().collective_timeout, 90);
}

TEST(ConfigTest, WarnsOfUnknownVariablesWithTheNearestName) {
  const test::LogCapture log;
  const Environment environment(
      {{"DUMPER_ENBALE", "1"}, {"DUMPER_ZZZZZZZZZZ", "1"}, {"DUMPER_enable", "1"}, {"DUMPER_FLTER", ""}});
  EXPECT_EQ(DumperConfig::from_env(), DumperConfig());
  ASSERT_EQ(log.lines().size(), 1u);
  const auto line = log.lines().front();
  EXPECT_EQ(line.level, LogLevel::warning);
  EXPECT_THAT(line.text,
              AllOf(HasSubstr("DUMPER_ENBALE (did you mean DUMPER_ENABLE?)"), HasSubstr("DUMPER_enable (did you mean"),
                    HasSubstr("DUMPER_ZZZZZZZZZZ"), Not(HasSubstr("DUMPER_ZZZZZZZZZZ (did")), Not(HasSubstr("FLTER"))));
}

TEST(ConfigTest, ExplainsTheTwinsPythonOnlyVariables) {
  const test::LogCapture log;
  const Environment environment(
      {{"DUMPER_SOURCE_PATCHER_CONFIG", "a.yaml"}, {"DUMPER_GRAFTER_TRANSFORM_PATH", "a.b.fn"}});
  EXPECT_EQ(DumperConfig::from_env(), DumperConfig());
  EXPECT_EQ(log.lines().size(), 2u);
  EXPECT_EQ(log.count("DUMPER_SOURCE_PATCHER_CONFIG is ignored"), 1u);
  EXPECT_EQ(log.count("register the transform in C++ and give its name in grafter_transform"), 1u);
  EXPECT_EQ(log.count("no settings of dbg"), 0u);
}

// --- From key=value ---

TEST(ConfigTest, ReadsKeyValues) {
  const DumperConfig config = DumperConfig::from_key_values(
      {"enable=yes", "filter=name == 'a' and layer_id == 1", "collective_timeout=5", "enable=0", "enable_value=  "});
  EXPECT_FALSE(config.enable);  // the later one
  EXPECT_EQ(config.filter, "name == 'a' and layer_id == 1");
  EXPECT_EQ(config.collective_timeout, 5);
  EXPECT_TRUE(config.enable_value);  // blank: the default
  EXPECT_EQ(DumperConfig::from_key_values({}), DumperConfig());
}

TEST(ConfigTest, RefusesPairsThatAreNone) {
  EXPECT_EQ(pair_error("enable"), "'enable' has no '=': give settings as key=value");
  EXPECT_THAT(pair_error("enabel=1"), AllOf(HasSubstr("unknown key 'enabel', did you mean enable?"),
                                            HasSubstr("valid keys: checksum, cleanup_previous"), HasSubstr("strict")));
  EXPECT_THAT(pair_error("=1"), HasSubstr("unknown key ''"));
  EXPECT_THAT(pair_error("ENABLE=1"), HasSubstr("unknown key 'ENABLE'"));
  EXPECT_THAT(pair_error("collective_timeout=x"), HasSubstr("collective_timeout: expected int, got 'x'"));
  EXPECT_THAT(pair_error("enable=2"), HasSubstr("enable: expected bool, got '2'"));
}

TEST(ConfigTest, NamesEveryWrongPairInOneError) {
  const std::string error = error_of([] { DumperConfig::from_key_values({"enable=2", "x", "collective_timeout=x"}); });
  EXPECT_THAT(error, AllOf(HasSubstr("3 settings"), HasSubstr("enable: expected bool"), HasSubstr("'x' has no '='"),
                           HasSubstr("collective_timeout: expected int")));
}

TEST(ConfigTest, OverridesOnlyWhatIsGiven) {
  const DumperConfig base = DumperConfig::from_key_values({"enable=1", "collective_timeout=5"});
  const DumperConfig changed = base.with_overrides({"collective_timeout=7", "exp_name=run"});
  EXPECT_TRUE(changed.enable);
  EXPECT_EQ(changed.collective_timeout, 7);
  EXPECT_EQ(changed.exp_name, "run");
  EXPECT_EQ(changed.with_overrides({"exp_name="}).exp_name, std::nullopt);
  EXPECT_EQ(base.collective_timeout, 5);
}

TEST(ConfigTest, LetsADefaultLoseToTheEnvironment) {
  const Environment environment({{"DUMPER_COLLECTIVE_TIMEOUT", "5"}, {"DUMPER_EXP_NAME", " "}});
  const DumperConfig config =
      DumperConfig::from_env().with_defaults({"collective_timeout=7", "exp_name=mine", "enable_grad=1"});
  EXPECT_EQ(config.collective_timeout, 5);
  EXPECT_EQ(config.exp_name, "mine");
  EXPECT_TRUE(config.enable_grad);
}

TEST(ConfigTest, ChecksADefaultThatLosesAllTheSame) {
  const Environment environment({{"DUMPER_COLLECTIVE_TIMEOUT", "5"}});
  EXPECT_THAT(error_of([] { DumperConfig().with_defaults({"collective_timeout=x"}); }),
              HasSubstr("expected int, got 'x'"));
}

TEST(ConfigTest, PrintsWhatItReads) {
  DumperConfig config =
      DumperConfig::from_key_values({"enable=1", "filter=a == 'b=c'", "exp_name=x", "grafter_master_port=80"});
  EXPECT_EQ(DumperConfig::from_key_values(config.to_key_values()), config);
  EXPECT_EQ(DumperConfig::from_key_values(DumperConfig().to_key_values()), DumperConfig());
  EXPECT_THAT(config.to_key_values(), ::testing::Contains("filter=a == 'b=c'"));
  EXPECT_EQ(config.to_key_values().size(), config_knobs().size());
}

TEST(ConfigTest, DiffersByAnyKnob) {
  for (const ConfigKnob& knob : config_knobs()) {
    const std::string value = knob.type == "bool"  ? (knob.default_text == "true" ? "0" : "1")
                              : knob.type == "int" ? "17"
                                                   : "zz";
    EXPECT_NE(DumperConfig::from_key_values({std::string(knob.name) + "=" + value}), DumperConfig()) << knob.name;
  }
}

// --- Checks on the whole ---

TEST(ConfigTest, AcceptsTheDefaults) {
  EXPECT_NO_THROW(DumperConfig().validate());
}

TEST(ConfigTest, WantsExpNameToBeOnePathComponent) {
  for (const std::string name : {"a/b", "/", "..", ".", "a\nb", "a\x7f", ".dbg_exp_names_0", ".dbgtmp-1"}) {
    EXPECT_THAT(fault_of("exp_name=" + name), HasSubstr("exp_name: got")) << name;
  }
  EXPECT_THAT(fault_of("exp_name=" + std::string(256, 'x')), HasSubstr("longer than 255 bytes"));
  for (const std::string name : {"run 1", "层", "...", "-x", "dbg", ".d"})
    EXPECT_EQ(fault_of("exp_name=" + name), "no error") << name;
}

TEST(ConfigTest, WantsAFolder) {
  DumperConfig config;
  config.dir = "";
  EXPECT_THAT(error_of([&] { config.validate(); }), HasSubstr("dir: got '', which is empty"));
  config.dir = std::string("a\0b", 3);
  EXPECT_THAT(error_of([&] { config.validate(); }), HasSubstr("holds a NUL"));
}

TEST(ConfigTest, ChecksServerPort) {
  for (const char* const text : {"-1", "0", "8080", "65535", "reuse", "-77"}) {
    EXPECT_EQ(fault_of(std::string("server_port=") + text), "no error") << text;
  }
  for (const char* const text : {"65536", "80a", "Reuse", "1.0"}) {
    EXPECT_THAT(fault_of(std::string("server_port=") + text), HasSubstr(std::string("got '") + text + "'")) << text;
  }
}

TEST(ConfigTest, ChecksNumbersSetInCode) {
  DumperConfig config;
  config.collective_timeout = 0;
  config.grafter_master_port = 70000;
  const std::string error = error_of([&] { config.validate(); });
  EXPECT_THAT(error, AllOf(HasSubstr("collective_timeout: got '0', which is out of range"),
                           HasSubstr("grafter_master_port: got '70000'")));
}

TEST(ConfigTest, CompilesEveryFilter) {
  for (const char* const knob : {"filter", "grafter_b2t_filter", "grafter_t2b_filter"}) {
    EXPECT_THAT(fault_of(std::string(knob) + "=a = 1"),
                AllOf(HasSubstr(std::string(knob) + "='a = 1'"), HasSubstr("column 3")))
        << knob;
  }
}

TEST(ConfigTest, WantsAllThatGraftingNeeds) {
  const std::vector<std::string> good = {
      "grafter_enable=1",           "grafter_role=target",  "grafter_master_address=10.0.0.1",
      "grafter_master_port=29500",  "grafter_t2b_filter=a", "grafter_baseline_world_size=2",
      "grafter_target_world_size=4"};
  EXPECT_NO_THROW(DumperConfig::from_key_values(good).validate());
  const auto with = [&](const std::string& pair) {
    return error_of([&] { DumperConfig::from_key_values(good).with_overrides({pair}).validate(); });
  };
  EXPECT_THAT(with("grafter_role="),
              HasSubstr("grafter_role: must be baseline, target or file when grafter_enable is on, got ''"));
  EXPECT_THAT(with("grafter_role=both"), HasSubstr("grafter_role: got 'both'"));
  EXPECT_THAT(with("grafter_master_address="), HasSubstr("grafter_master_address: must be"));
  EXPECT_THAT(with("grafter_master_port=0"),
              HasSubstr("grafter_master_port: must be a port from 1 to 65535 when grafter_enable is on, got '0'"));
  EXPECT_THAT(with("grafter_baseline_world_size=0"), HasSubstr("grafter_baseline_world_size: must be"));
  EXPECT_THAT(with("grafter_target_world_size=-1"), HasSubstr("got '-1'"));
  EXPECT_THAT(with("grafter_t2b_filter="), HasSubstr("neither grafter_b2t_filter nor grafter_t2b_filter"));
  EXPECT_THAT(with("grafter_backend=mpi"), HasSubstr("accepted: gloo, nccl"));
  EXPECT_THAT(with("grafter_enable=0"), "no error");
  EXPECT_THAT(with("grafter_role=file"), AllOf(HasSubstr("grafter_folder: must be a folder of records"),
                                               HasSubstr("grafter_b2t_filter: must be"), Not(HasSubstr("t2b"))));
}

TEST(ConfigTest, NamesVariablesInGrafterFaultsFromTheEnvironment) {
  const Environment environment({{"DUMPER_GRAFTER_ENABLE", "1"}, {"DUMPER_GRAFTER_MASTER_PORT", "http"}});
  const std::string error = env_error();
  EXPECT_THAT(error, AllOf(HasSubstr("DUMPER_GRAFTER_ROLE: must be"), HasSubstr("when DUMPER_GRAFTER_ENABLE is on"),
                           HasSubstr("DUMPER_GRAFTER_MASTER_PORT: expected int, got 'http'")));
  EXPECT_THAT(error, Not(HasSubstr("DUMPER_GRAFTER_MASTER_PORT: must be")));  // said once
}

TEST(ConfigTest, SaysWhatThisVersionLacks) {
  EXPECT_THAT(DumperConfig().unavailable_parts(), IsEmpty());
  EXPECT_THAT(DumperConfig::from_key_values({"server_port=0"}).unavailable_parts(), IsEmpty());
  const auto parts = DumperConfig::from_key_values({"server_port=8080", "non_intrusive_mode=all", "grafter_enable=1"})
                         .unavailable_parts();
  EXPECT_THAT(parts, ElementsAre(HasSubstr("server_port=8080"), HasSubstr("non_intrusive_mode=all")));
  EXPECT_THAT(DumperConfig::from_key_values({"server_port=reuse"}).unavailable_parts(),
              ElementsAre(HasSubstr("server_port=reuse")));
}

// --- The default folder and the table ---

TEST(ConfigTest, PutsTheUserIntoTheDefaultFolder) {
  const std::string user = std::to_string(::geteuid());
  for (const auto& [given, expected] : {std::pair<const char*, std::string>{"/scratch/", "/scratch/dumper_"},
                                        {"/", "/dumper_"},
                                        {"", "/tmp/dumper_"}}) {
    const test::ScopedEnv tmpdir("TMPDIR", given);
    EXPECT_EQ(default_dump_dir(), expected + user);
    EXPECT_EQ(DumperConfig().dir, expected + user);
  }
  const test::ScopedEnv tmpdir("TMPDIR", std::nullopt);
  EXPECT_EQ(default_dump_dir(), "/tmp/dumper_" + user);
}

std::vector<std::string> cells_of(const std::string& row) {
  std::vector<std::string> cells;
  std::istringstream stream(row);
  for (std::string cell; std::getline(stream, cell, '|');) {
    const std::size_t first = cell.find_first_not_of(' ');
    if (first == std::string::npos) continue;
    cells.push_back(cell.substr(first, cell.find_last_not_of(' ') - first + 1));
  }
  return cells;
}

TEST(ConfigTest, ReadmeListsTheKnobsAsTheyAre) {
  std::ifstream file(std::string(std::getenv("DBG_TEST_SOURCE_DIR")) + "/README.md");
  std::vector<std::vector<std::string>> rows;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line == "<!-- knobs -->") inside = true;
    if (line == "<!-- /knobs -->") inside = false;
    if (inside && line.rfind("| `", 0) == 0) rows.push_back(cells_of(line));
  }
  std::vector<std::vector<std::string>> expected;
  for (const ConfigKnob& knob : config_knobs()) {
    expected.push_back({"`" + knob.variable + "`", std::string(knob.type), "`" + knob.default_text + "`", knob.accepted,
                        std::string(knob.help)});
  }
  EXPECT_EQ(rows, expected) << "README.md, between <!-- knobs --> and <!-- /knobs -->";
}

}  // namespace
}  // namespace dbg
