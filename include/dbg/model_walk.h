// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// The duck-typed walk over a model's parameters: torch::nn::Module, or an engine's own module class.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "dbg/export.h"

namespace dbg {

/// One parameter as the model names it. Shares the tensor; copies no data.
struct NamedParameter {
  std::string name;
  at::Tensor tensor;
};

namespace detail {

template <class T, class = void>
struct has_named_parameters : std::false_type {};
template <class T>
struct has_named_parameters<T, std::void_t<decltype(std::declval<T&>().named_parameters())>> : std::true_type {};

template <class T, class = void>
struct is_dereferenceable : std::false_type {};
template <class T>
struct is_dereferenceable<T, std::void_t<decltype(*std::declval<T&>())>> : std::true_type {};

template <class T, class = void>
struct has_key_and_value : std::false_type {};
template <class T>
struct has_key_and_value<
    T, std::void_t<decltype(std::declval<const T&>().key()), decltype(std::declval<const T&>().value())>>
    : std::true_type {};

template <class T, class = void>
struct is_null_testable : std::false_type {};
template <class T>
struct is_null_testable<T, std::void_t<decltype(static_cast<bool>(std::declval<const T&>()))>> : std::true_type {};

/// A C++ type's readable name.
DBG_API std::string readable_type_name(const std::type_info& type);

/// Follows pointers and holders to the object that has `named_parameters()`, and calls `visit(object)`.
/// Returns false on a null pointer.
template <class Model, class Visit>
bool visit_model(Model& model, const Visit& visit) {
  using Plain = std::remove_cv_t<Model>;
  if constexpr (has_named_parameters<Model>::value) {
    visit(model);
    return true;
  } else {
    static_assert(is_dereferenceable<Model>::value,
                  "dump_model needs a torch::nn::Module, an object with named_parameters(), or a pointer to one");
    if constexpr (std::is_pointer_v<Plain> || (is_null_testable<Plain>::value && !std::is_array_v<Plain>)) {
      if (!static_cast<bool>(model)) return false;
    }
    return visit_model(*model, visit);
  }
}

template <class Item>
NamedParameter to_named_parameter(const Item& item) {
  if constexpr (has_key_and_value<Item>::value) {
    return {std::string(item.key()), at::Tensor(item.value())};
  } else {
    return {std::string(item.first), at::Tensor(item.second)};
  }
}

/// What one walk found.
struct WalkedModel {
  std::string type_name;
  std::vector<NamedParameter> parameters;
  bool is_null = false;
};

/// A borrowed model of any type, walked only when asked. Valid during one call.
class ModelView {
 public:
  template <class Model>
  static ModelView of(Model& model) {
    ModelView view;
    view.object_ = const_cast<void*>(static_cast<const volatile void*>(std::addressof(model)));
    view.walk_ = [](void* object) {
      WalkedModel walked;
      walked.is_null = !visit_model(*static_cast<Model*>(object), [&walked](auto& found) {
        walked.type_name = readable_type_name(typeid(found));
        auto&& items = found.named_parameters();
        for (const auto& item : items) walked.parameters.push_back(to_named_parameter(item));
      });
      return walked;
    };
    return view;
  }

  WalkedModel walk() const { return walk_(object_); }

 private:
  ModelView() = default;
  void* object_ = nullptr;
  WalkedModel (*walk_)(void*) = nullptr;
};

}  // namespace detail

/// A module that the model never registered, with the path that its parameters shall carry: many engines keep their
/// decoder layers in a plain vector. Borrows `module` for the call it is handed to.
class ExtraModule {
 public:
  template <class Module>
  ExtraModule(std::string path, Module& module) : path_(std::move(path)), view_(detail::ModelView::of(module)) {}

  const std::string& path() const noexcept { return path_; }
  const detail::ModelView& view() const noexcept { return view_; }

 private:
  std::string path_;
  detail::ModelView view_;
};

}  // namespace dbg
