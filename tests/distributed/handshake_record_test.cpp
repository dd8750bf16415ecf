// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Records and mail of the handshake: there and back, rubbish, differences.
#include "distributed/handshake_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace dbg::distributed {
namespace {

using testing::HasSubstr;

TEST(HandshakeRecordTest, ARecordComesBackAsItWas) {
  HandshakeRecord record = HandshakeRecord::of_this_process();
  record.rank = 3;
  record.ranks = {3, 1};
  record.settings = {{"check", "on"}};
  record.gone = "quote \" and \n";
  const auto back = HandshakeRecord::from_json(record.to_json());
  ASSERT_TRUE(back);
  EXPECT_EQ(back->to_json(), record.to_json());
  EXPECT_EQ(back->pid, ::getpid());
  EXPECT_EQ(back->nonce, record.nonce);
}

TEST(HandshakeRecordTest, NoncesDiffer) {
  EXPECT_NE(HandshakeRecord::of_this_process().nonce, HandshakeRecord::of_this_process().nonce);
}

TEST(HandshakeRecordTest, RubbishIsNoRecord) {
  const std::string good = HandshakeRecord::of_this_process().to_json();
  for (std::size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(HandshakeRecord::from_json(good.substr(0, length))) << length;
  }
  EXPECT_FALSE(HandshakeRecord::from_json("{\"nonce\": 3}"));
  EXPECT_FALSE(HandshakeMail::from_json("[1]"));
  EXPECT_FALSE(HandshakeMail::from_json("{}"));
}

TEST(HandshakeRecordTest, KnowsItsOwnProcessAliveAndAnotherDead) {
  HandshakeRecord record = HandshakeRecord::of_this_process();
  EXPECT_EQ(record.is_alive(), true);
  record.pid = 0x7ffffffe;
  EXPECT_EQ(record.is_alive(), false);
  record.machine = "another";
  EXPECT_EQ(record.is_alive(), std::nullopt);
}

TEST(HandshakeRecordTest, MailComesBackAsItWas) {
  const HandshakeMail mail{"", CommErrorKind::peer_lost, {4, 2}, "why"};
  const auto back = HandshakeMail::from_json(mail.to_json());
  ASSERT_TRUE(back);
  EXPECT_EQ(back->kind, CommErrorKind::peer_lost);
  EXPECT_EQ(back->peers, mail.peers);
  EXPECT_EQ(back->cause, "why");
}

TEST(HandshakeRecordTest, LoopbackOfTwoMachinesIsRefused) {
  HandshakeRecord here = HandshakeRecord::of_this_process();
  HandshakeRecord there = here;
  there.machine = "another";
  EXPECT_EQ(difference_of(here, there), std::nullopt);
  there.binds_to_loopback = true;
  EXPECT_THAT(difference_of(here, there).value_or(""), HasSubstr("gloo binds to loopback"));
  there.machine = here.machine;
  EXPECT_EQ(difference_of(here, there), std::nullopt);
}

}  // namespace
}  // namespace dbg::distributed
