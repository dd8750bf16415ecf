// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// A difference shows with the first weight that both sides know, whoever is ahead.
#include "broadcast/plan_agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "dbg/error.h"

namespace dbg::broadcast {
namespace {

WeightInfo weight(const std::string& name, std::int64_t size = 3) {
  return {name, {size}, at::kFloat};
}

template <class Body>
std::string difference(Body&& body) {
  try {
    body();
  } catch (const CommError& error) {
    EXPECT_EQ(error.kind(), CommErrorKind::handshake_mismatch);
    return error.failure().cause;
  }
  return "";
}

TEST(PlanAgreementTest, EqualStreamsAgreeWhoeverIsAhead) {
  PlanAgreement agreement("actor 1");
  EXPECT_EQ(difference([&] {
              agreement.add_own(weight("a"));
              agreement.add_own(weight("b"));
              agreement.add_root({weight("a"), weight("b"), weight("c"), weight("d")});
              agreement.add_own(weight("c"));
              agreement.add_own(weight("d"));
            }),
            "");
}

TEST(PlanAgreementTest, ADifferenceIsNamedByNumberOnBothSides) {
  PlanAgreement ahead("actor 1");
  ahead.add_own(weight("a"));
  ahead.add_own(weight("b"));
  EXPECT_THAT(difference([&] {
                ahead.add_root({weight("a"), weight("x", 4)});
              }),
              testing::HasSubstr("weight 1 is 'x' (float32 [4]) on the root and 'b' (float32 [3]) on actor 1"));
  PlanAgreement behind("actor 1");
  behind.add_root({weight("a"), weight("b")});
  behind.add_own(weight("a"));
  EXPECT_THAT(difference([&] { behind.add_own(weight("b", 5)); }), testing::HasSubstr("weight 1"));
}

}  // namespace
}  // namespace dbg::broadcast
