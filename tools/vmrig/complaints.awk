# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# Finds in a console what the kernel complains of, with what the command has said there
# (/dev/kmsg) that it does. The variable kernel is the kernel's name.
sub(/.*vmrig begins /, "") { doing = $0 ": "; next }
/BUG: |WARNING: CPU|Oops|general protection fault|UBSAN:|KASAN:|Kernel panic|refcount_t: / { print "vmrig: kernel " kernel " complained: " doing $0 }
