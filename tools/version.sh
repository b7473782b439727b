#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# Prints git's description of the checkout around the current directory, with "-dirty"
# if a tracked file outside of docs was changed: tests and measurements write their
# results to docs, of which nothing is built.
set -euo pipefail
cd "$(git rev-parse --show-toplevel)"
version=$(git describe --tags --always)
git diff --quiet HEAD -- . ':!docs' || version+=-dirty
echo "$version"
