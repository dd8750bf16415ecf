// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Facts about a process that holds two copies of dbg: this program, and a shared object that it opens.
#include <dlfcn.h>

#include <filesystem>

#include "base/one_image.h"
#include "dump/dumper_fixture.h"

namespace dbg {
namespace {

using testing::ElementsAre;
using testing::EndsWith;

class DumperCopiesTest : public test::DumperFixture {};

TEST_F(DumperCopiesTest, ASecondCopyWarnsOnceThoughItsSymbolsAreHidden) {
  EXPECT_THAT(base::images_with_dbg(), ElementsAre("the program itself"));
  const Dumper alone(config());
  EXPECT_EQ(log_.lines().size(), 0u);

  const auto beside = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "second_copy.so";
  void* opened = ::dlopen(beside.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(opened, nullptr) << ::dlerror();
  EXPECT_THAT(base::images_with_dbg(), ElementsAre("the program itself", EndsWith("second_copy.so")));
  const auto lines = reinterpret_cast<int (*)(const char*)>(::dlsym(opened, "lines_of_second_copy"));
  ASSERT_NE(lines, nullptr);
  EXPECT_EQ(lines(folder_.path().c_str()), 1);
  EXPECT_EQ(lines(folder_.path().c_str()), 0);
}

}  // namespace
}  // namespace dbg
