// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Facts about changing a Dumper while it runs, and about what it says of itself.
#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "dbg/error.h"
#include "dump/dumper_fixture.h"

namespace dbg {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class DumperSettingsTest : public test::DumperFixture {};

template <class Code>
std::string message_of(Code code) {
  try {
    code();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "<no ConfigError>";
}

TEST_F(DumperSettingsTest, ConstructorRefusesABadConfiguration) {
  EXPECT_THAT(message_of([&] { Dumper dumper(config({"filter=layer_id =="})); }), HasSubstr("column"));
  EXPECT_THROW(Dumper dumper(config({"exp_name=a/b"})), ConfigError);
}

TEST_F(DumperSettingsTest, SyntaxErrorRaisesAtConfigureAndChangesNothing) {
  Dumper dumper(config({"filter=name == 'x'"}));
  const DumperConfig before = dumper.state().config;
  EXPECT_THAT(message_of([&] {
                dumper.configure({"enable_value=false", "filter=layer_id in (0,"});
              }),
              HasSubstr("column"));
  EXPECT_THROW(dumper.configure({"enable=false", "no_such_knob=1"}), ConfigError);
  EXPECT_THROW(dumper.configure({"enable=false", "enable_grad=perhaps"}), ConfigError);
  EXPECT_THROW(dumper.configure({"enable=false", "grafter_enable=true"}), ConfigError);
  DumperConfig bad = before;
  bad.enable = false;
  bad.exp_name = "../elsewhere";
  EXPECT_THROW(dumper.configure(bad), ConfigError);
  EXPECT_EQ(dumper.state().config, before);
  EXPECT_TRUE(dumper.is_enabled());
  dumper.dump("x", at::ones({2}));
  dumper.dump("y", at::ones({2}));
  EXPECT_THAT(file_tags("name"), ElementsAre("x"));
}

TEST_F(DumperSettingsTest, EveryFieldChangesFromTheNextCallOn) {
  Dumper dumper(config({"enable=false"}));
  dumper.dump("off", at::ones({2}));
  dumper.configure({"enable=true"});
  dumper.dump("on", at::ones({2}));
  dumper.configure({"filter=name != 'rejected'"});
  dumper.dump("rejected", at::ones({2}));
  dumper.configure({"filter="});
  dumper.dump("rejected", at::ones({2}));
  dumper.configure({"enable_value=false"});
  dumper.dump("no_value", at::ones({2}));
  dumper.configure({"enable_value=true", "enable_output_file=false"});
  dumper.dump("no_file", at::ones({2}));
  dumper.configure({"enable_output_file=true", "enable_output_console=true"});
  dumper.dump("console", at::ones({2}));
  dumper.configure({"enable=false"});
  EXPECT_FALSE(dumper.is_enabled());
  dumper.dump("off_again", at::ones({2}));
  EXPECT_THAT(file_tags("name"), ElementsAre("on", "rejected", "console"));
  EXPECT_EQ(log_.count("[Dumper.Value]"), 1u);
}

TEST_F(DumperSettingsTest, FolderAndExperimentCanChange) {
  Dumper dumper(config());
  dumper.dump("x", at::ones({2}));
  dumper.configure({"exp_name=second"});
  dumper.dump("y", at::ones({2}));
  dumper.configure({"dir=" + (folder_ / "deeper" / "still").string()});
  dumper.dump("z", at::ones({2}));
  EXPECT_THAT(file_tags("name"), ElementsAre("x"));
  EXPECT_EQ(list_records((folder_ / "second").string()).size(), 1u);
  EXPECT_EQ(list_records((folder_ / "deeper" / "still" / "second").string()).size(), 1u);
  EXPECT_EQ(dumper.state().exp_name, "second");
}

TEST_F(DumperSettingsTest, PluginsAndInterceptorOutliveConfigure) {
  Dumper dumper(config());
  auto plugin = std::make_shared<test::FakePlugin>();
  plugin->recompute = RecomputeStatus::original;
  dumper.add_plugin(plugin);
  dumper.set_interceptor([](const Interception&) {});
  dumper.configure({"checksum=false"});
  dumper.dump("x", at::ones({2}));
  EXPECT_THAT(file_tags("recompute_status"), ElementsAre("original"));
  EXPECT_EQ(dumper.state().counters.interceptions, 1u);
}

TEST_F(DumperSettingsTest, AListenerIsAskedBeforeAConfigurationIsTaken) {
  Dumper dumper(config({"filter=name == 'first'"}));
  std::vector<std::string> asked;
  dumper.set_config_listener([&](const DumperConfig& asks) {
    asked.push_back(asks.filter.value_or("") + " while " + dumper.state().config.filter.value_or(""));
  });
  dumper.configure({"filter=name == 'second'"});
  dumper.set_config_listener({});
  dumper.configure({"filter=name == 'third'"});
  EXPECT_THAT(asked, ElementsAre("name == 'first' while name == 'first'", "name == 'second' while name == 'first'"));
}

TEST_F(DumperSettingsTest, WhatAListenerRefusesChangesNothing) {
  Dumper dumper(config({"filter=name == 'x'"}));
  const DumperConfig before = dumper.state().config;
  bool refuses = false;
  dumper.set_config_listener([&](const DumperConfig&) {
    if (refuses) throw ConfigError("not now");
  });
  refuses = true;
  EXPECT_EQ(message_of([&] { dumper.configure({"enable=false", "filter=name == 'y'"}); }), "not now");
  DumperConfig other = before;
  other.enable = false;
  EXPECT_EQ(message_of([&] { dumper.configure(other); }), "not now");
  EXPECT_EQ(dumper.state().config, before);
  EXPECT_TRUE(dumper.is_enabled());
  refuses = false;
  dumper.configure({"filter=name == 'y'"});  // the listener is still there, and so is the way to configure
  EXPECT_EQ(dumper.state().config.filter, "name == 'y'");
}

TEST_F(DumperSettingsTest, AListenerThatConfiguresIsToldSoInsteadOfWaitingForItself) {
  Dumper dumper(config());
  std::string told;
  dumper.set_config_listener([&](const DumperConfig&) {
    try {
      dumper.configure({"filter=name == 'x'"});
    } catch (const LogicError& error) {
      told = error.what();
    }
  });
  EXPECT_THAT(told, HasSubstr("once the listener has returned"));
  dumper.configure({"filter=name == 'y'"});
  EXPECT_EQ(dumper.state().config.filter, "name == 'y'");
}

TEST_F(DumperSettingsTest, AListenerIsCalledByOneThreadAtATimeAndKnowsTheLastConfiguration) {
  Dumper dumper(config());
  int inside = 0;  // no atomic: ThreadSanitizer sees whether calls overlap
  int last = 0;
  dumper.set_config_listener([&](const DumperConfig& asks) {
    EXPECT_EQ(++inside, 1);
    last = asks.collective_timeout;
    --inside;
  });
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 2; ++thread) {
    threads.emplace_back([&dumper, thread] {
      for (int i = 1; i <= 100; ++i) dumper.configure({"collective_timeout=" + std::to_string(200 * thread + i)});
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(last, dumper.state().config.collective_timeout);
}

TEST_F(DumperSettingsTest, LayerIdsAreOfTheWholeModelToo) {
  Dumper dumper(config());
  EXPECT_EQ(dumper.layer_id_of("layers.1.mlp"), 1);
  const ParticipantScope scope(std::make_shared<const Participant>(1, 2));
  auto broken = std::make_shared<test::FakePlugin>();
  broken->throws = true;
  dumper.add_plugin(broken);
  dumper.add_plugin(std::make_shared<PipelineLayerOffsetPlugin>(
      [](int) -> std::optional<std::int64_t> { return current_participant()->rank() * 3; }));
  EXPECT_EQ(dumper.layer_id_of("layers.1.mlp"), 4);
  EXPECT_EQ(dumper.layer_id_of("embed"), std::nullopt);
  EXPECT_EQ(dumper.state().counters.plugin_faults, 2u);
  EXPECT_EQ(log_.count("layer_id_of threw: no layers"), 1u);
}

TEST_F(DumperSettingsTest, NullPluginIsRefused) {
  Dumper dumper(config());
  EXPECT_THROW(dumper.add_plugin(nullptr), ConfigError);
}

TEST_F(DumperSettingsTest, ResetZeroesIndexStepAndContext) {
  Dumper dumper(config());
  dumper.set_ctx({{"phase", "warmup"}});
  dumper.dump("x", at::ones({2}));
  dumper.step();
  dumper.dump("x", at::ones({2}));
  EXPECT_EQ(dumper.state().step, 1);
  EXPECT_EQ(dumper.state().dump_index, 2);
  const DumperConfig before = dumper.state().config;

  dumper.reset();
  EXPECT_EQ(dumper.state().step, 0);
  EXPECT_EQ(dumper.state().dump_index, 0);
  EXPECT_EQ(dumper.state().config, before);
  EXPECT_EQ(dumper.state().exp_name, "exp");
  dumper.dump("y", at::ones({2}));
  EXPECT_EQ(test::tag_text(files().at(1), "phase"), "<none>") << file_names().at(1);
}

TEST_F(DumperSettingsTest, SecondPhaseDoesNotOverwriteTheFirst) {
  Dumper dumper(config());
  for (int i = 0; i < 3; ++i) dumper.dump("x", at::full({2}, i));
  dumper.reset();
  for (int i = 0; i < 2; ++i) dumper.dump("x", at::full({2}, 10 + i));
  EXPECT_THAT(file_tags("dump_index"), ElementsAre("1", "2", "3", "4", "5"));
  EXPECT_EQ(dumper.state().counters.written, 5u);
  const auto all = paths();
  ASSERT_EQ(all.size(), 5u);
  const std::vector<int> expected{0, 1, 2, 10, 11};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const DumpRecord record = test::read_file(all[i]);
    EXPECT_TRUE(at::equal(record.value.toTensor(), at::full({2}, expected[i]))) << all[i];
    EXPECT_EQ(test::meta_of(record, "dump_index").toInt(), static_cast<std::int64_t>(i) + 1) << "as the file name says";
  }
}

TEST_F(DumperSettingsTest, ResetIsOfTheCallingParticipant) {
  Dumper dumper(config());
  const auto rank0 = std::make_shared<const Participant>(0, 2);
  const auto rank1 = std::make_shared<const Participant>(1, 2);
  for (const auto& participant : {rank0, rank1}) {
    const ParticipantScope scope(participant);
    dumper.step();
    dumper.dump("x", at::ones({2}));
  }
  {
    const ParticipantScope scope(rank0);
    dumper.reset();
    EXPECT_EQ(dumper.state().step, 0);
  }
  const ParticipantScope scope(rank1);
  EXPECT_EQ(dumper.state().step, 1);
  EXPECT_EQ(dumper.state().dump_index, 1);
}

TEST_F(DumperSettingsTest, StateCountsBytesOfFiles) {
  Dumper dumper(config());
  dumper.dump("x", at::ones({1000}));
  dumper.dump("y", at::ones({10}));
  std::uint64_t bytes = 0;
  for (const std::string& path : paths()) bytes += std::filesystem::file_size(path);
  EXPECT_EQ(dumper.state().counters.bytes_written, bytes);
}

TEST_F(DumperSettingsTest, DumperMayGoWhileItsScopesLive) {
  auto dumper = std::make_unique<Dumper>(config());
  const auto capture = dumper->capture_output();
  dumper->dump("x", at::ones({2}));
  dumper.reset();
  EXPECT_EQ(capture.records().size(), 1u);
}

}  // namespace
}  // namespace dbg
