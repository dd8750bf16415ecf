// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Groups that say what they are: alone, or with several ranks under `torchrun --no-python`.
#include <ATen/ATen.h>
#include <dbg/error.h>
#include <dbg/group_coordinator.h>
#include <dbg/world.h>

#include <iostream>
#include <sstream>
#include <vector>

int main() {
  try {
    // RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT; without them this process is alone.
    const dbg::World world = dbg::World::from_env();

    // tensor parallel: neighbours. pipeline parallel: every other rank.
    std::vector<std::vector<int>> tp, pp;
    const int half = world.world_size() / 2;
    if (half == 0) {
      tp = pp = {{0}};
    } else {
      for (int i = 0; i < half; ++i) tp.push_back({2 * i, 2 * i + 1});
      for (int first : {0, 1}) {
        pp.emplace_back();
        for (int i = 0; i < half; ++i) pp.back().push_back(2 * i + first);
      }
    }

    std::ostringstream text;  // one write a rank, so that lines of several do not mix
    for (const auto& [name, ranks] : {std::pair("tp", tp), std::pair("pp", pp)}) {
      dbg::GroupOptions options;
      options.group_name = name;
      options.timeout = std::chrono::seconds(30);
      const auto group = dbg::GroupCoordinator::create(world, ranks, options);
      if (!group) continue;  // an odd last rank is in none
      at::Tensor sum = at::full({1}, static_cast<double>(world.rank()));
      group->all_reduce(sum);  // a tensor of the CPU goes over gloo, whatever the device half is
      text << group->describe() << "\n  sum of ranks: " << sum.item<double>() << "\n"
           << group->label_report().text() << "\n";
    }
    std::cout << text.str() << std::flush;
    return 0;
  } catch (const dbg::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
