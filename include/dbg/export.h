// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// How declarations meet the compiler: what stays visible of libdbg.a in a shared object, and what becomes part of its
// caller.
#pragma once

/// Put before a class or function that a user's code calls. All else is compiled hidden.
#define DBG_API __attribute__((visibility("default")))

/// Put before the few functions whose whole point is to cost a load and a branch in their caller.
#define DBG_ALWAYS_INLINE __attribute__((always_inline)) inline
