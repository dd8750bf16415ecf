// SPDX-FileCopyrightText: the dbg authors
// SPDX-License-Identifier: Apache-2.0
// DBG_API: marks what stays visible when libdbg.a is linked into a shared object.
#pragma once

/// Put before a class or function that a user's code calls. All else is compiled hidden.
#define DBG_API __attribute__((visibility("default")))
