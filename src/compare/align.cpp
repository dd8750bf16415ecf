// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// Permutes, flattens and squeezes.
#include "compare/align.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/formatted.h"
#include "base/windowed_storage.h"

namespace dbg::compare {
namespace {

// A dimension by the names it stands for.
using Names = std::vector<std::string>;

struct Named {
  at::Tensor tensor;
  std::vector<Names> dims;
};

// Tokens are a sequence, packed or not.
std::string normal(const std::string& name) {
  return name == "t" ? "s" : name;
}

Named without_ones(const at::Tensor& tensor, const Dims& dims) {
  Named named{tensor, {}};
  for (std::size_t i = dims.dims().size(); i-- > 0;) {
    const Dim& dim = dims.dims()[i];
    if (dim.is_squeeze()) {
      named.tensor = named.tensor.squeeze(static_cast<std::int64_t>(i));
      continue;
    }
    Names names;
    for (const std::string& name : dim.names) names.push_back(normal(name));
    named.dims.insert(named.dims.begin(), std::move(names));
  }
  return named;
}

Names all_names(const Named& named) {
  Names names;
  for (const Names& dim : named.dims) names.insert(names.end(), dim.begin(), dim.end());
  std::sort(names.begin(), names.end());
  return names;
}

// Brings the dimensions that `group` names one by one next to each other, in the group's order, and makes them one.
void flatten(Named& named, const Names& group) {
  std::vector<std::size_t> places;
  for (const std::string& name : group) {
    const auto at = std::find(named.dims.begin(), named.dims.end(), Names{name});
    if (at == named.dims.end()) return;
    places.push_back(static_cast<std::size_t>(at - named.dims.begin()));
  }
  std::vector<std::int64_t> order;
  std::vector<Names> dims;
  std::int64_t first = 0;
  for (std::size_t i = 0; i < named.dims.size(); ++i) {
    if (i == places.front()) {
      first = static_cast<std::int64_t>(order.size());
      order.insert(order.end(), places.begin(), places.end());
      dims.push_back(group);
    } else if (std::find(places.begin(), places.end(), i) == places.end()) {
      order.push_back(static_cast<std::int64_t>(i));
      dims.push_back(named.dims[i]);
    }
  }
  named.tensor = named.tensor.permute(order).flatten(first, first + static_cast<std::int64_t>(places.size()) - 1);
  named.dims = std::move(dims);
}

// Returns false when a dimension has no partner.
bool permute_like(Named& named, const std::vector<Names>& wanted) {
  std::vector<std::int64_t> order;
  for (const Names& dim : wanted) {
    const auto at = std::find(named.dims.begin(), named.dims.end(), dim);
    if (at == named.dims.end()) return false;
    order.push_back(at - named.dims.begin());
  }
  if (order.size() != named.dims.size()) return false;
  named.tensor = named.tensor.permute(order);
  named.dims = wanted;
  return true;
}

at::Tensor without_leading_ones(const at::Tensor& tensor, std::int64_t dims) {
  at::Tensor result = tensor;
  while (result.dim() > dims && result.size(0) == 1) result = result.squeeze(0);
  return result;
}

std::vector<std::string> labels_of(const std::vector<Names>& dims) {
  std::vector<std::string> labels;
  for (const Names& names : dims) labels.push_back(formatted("{}", fmt::join(names, "*")));
  return labels;
}

void load(const at::Tensor& tensor) {
  if (tensor.has_storage()) base::load_whole(tensor.storage());
}

bool fits(const at::Tensor& tensor, const std::optional<Dims>& dims) {
  if (!dims || tensor.dim() != static_cast<std::int64_t>(dims->dims().size())) return false;
  for (std::size_t i = 0; i < dims->dims().size(); ++i) {
    if (dims->dims()[i].is_squeeze() && tensor.size(static_cast<std::int64_t>(i)) != 1) return false;
  }
  return true;
}

void align_names(Aligned& aligned, const Dims& dims_a, const Dims& dims_b) {
  Named a = without_ones(aligned.a, dims_a);
  Named b = without_ones(aligned.b, dims_b);
  if (a.dims != b.dims) {
    if (all_names(a) != all_names(b)) return;
    for (Named* side : {&a, &b}) {
      const Named& other = side == &a ? b : a;
      for (const Names& dim : std::vector<Names>(other.dims)) {
        if (dim.size() < 2 || std::find(side->dims.begin(), side->dims.end(), dim) != side->dims.end()) continue;
        load(side->tensor);  // flattening may copy
        flatten(*side, dim);
      }
    }
    if (!permute_like(b, a.dims)) return;
  }
  if (a.tensor.sizes() != b.tensor.sizes()) return;
  if (aligned.a.sizes() != a.tensor.sizes() || aligned.b.sizes() != b.tensor.sizes() ||
      aligned.b.strides() != b.tensor.strides()) {
    aligned.note = formatted("aligned by dims: [{}] and [{}] as [{}]", fmt::join(aligned.a.sizes().vec(), ", "),
                             fmt::join(aligned.b.sizes().vec(), ", "), fmt::join(a.tensor.sizes().vec(), ", "));
  }
  aligned.a = a.tensor;
  aligned.b = b.tensor;
  aligned.labels = labels_of(a.dims);
}

}  // namespace

Aligned align(const at::Tensor& a, const std::optional<Dims>& dims_a, const at::Tensor& b,
              const std::optional<Dims>& dims_b) {
  Aligned aligned{a, b, {}, {}};
  if (!a.defined() || !b.defined() || a.layout() != at::kStrided || b.layout() != at::kStrided) return aligned;
  const c10::AutoGradMode no_grad(false);
  if (fits(a, dims_a)) {
    std::vector<Names> names;
    for (const Dim& dim : dims_a->dims()) names.push_back(dim.is_squeeze() ? Names{"1"} : dim.names);
    aligned.labels = labels_of(names);
  }
  if (fits(a, dims_a) && fits(b, dims_b)) align_names(aligned, *dims_a, *dims_b);
  if (aligned.a.sizes() != aligned.b.sizes() && aligned.a.dim() != aligned.b.dim()) {
    const std::int64_t dims = std::min(aligned.a.dim(), aligned.b.dim());
    const at::Tensor short_a = without_leading_ones(aligned.a, dims);
    const at::Tensor short_b = without_leading_ones(aligned.b, dims);
    if (short_a.sizes() == short_b.sizes()) {
      if (!aligned.labels.empty()) {
        aligned.labels.erase(aligned.labels.begin(), aligned.labels.begin() + (aligned.a.dim() - short_a.dim()));
      }
      aligned.note = formatted("leading dimensions of 1 dropped: [{}] and [{}]",
                               fmt::join(aligned.a.sizes().vec(), ", "), fmt::join(aligned.b.sizes().vec(), ", "));
      aligned.a = short_a;
      aligned.b = short_b;
    }
  }
  return aligned;
}

}  // namespace dbg::compare
