#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
#
# steps.sh [-k] [-m MAKE] [-r PAGE] TARGETS...
#
# Runs targets of make and prints how long each took, at the end also where one failed, and
# what the failed ones said of it: whoever sees only the last lines of a run sees the cause.
# Those joined by + run side by side, those joined by a comma one after the other: a,b+c
# runs c beside both. -k goes on after a failure, -m names the program that runs a target,
# and -r writes date, commit and result into PAGE, from which release.sh reads them; what
# has passed at this commit by PAGE, before the first step that did not, does not run again,
# so that a run of hours may be interrupted. What takes less than a minute does: others
# need what it installs.
set -euo pipefail

go_on='' make=make page='' ended=''
while getopts km:r: flag; do
	case $flag in
	k) go_on=yes ;;
	m) make=$OPTARG ;;
	r) page=$OPTARG ;;
	*) exit 2 ;;
	esac
done
shift $((OPTIND - 1))

# A file for each target that ran: outcome, seconds, seconds of processor time.
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
# The terminal sends the signal to the targets, too; the table comes after them.
trap 'ended=yes' INT TERM
TIMEFORMAT='%R %U %S'
exec 3>&1

# chain A,B [beside] runs the targets in order, and says whose lines are whose if others
# run beside it.
chain() {
	local name outcome all=passed
	for name in ${1//,/ }; do
		[ ! -e "$dir/$name" ] || continue
		outcome=passed
		if [ -n "${2:-}" ]; then
			{ time "$make" "$name" 2>&1 | tee -i "$dir/said.$name" | sed -u -e "s/^/$name: /" -e "\$a\\" >&3; } 2>"$dir/time.$name" || outcome=FAILED
		else
			{ time "$make" "$name" 2>&1 | tee -i "$dir/said.$name" >&3; } 2>"$dir/time.$name" || outcome=FAILED
		fi
		awk -v outcome=$outcome 'END { printf "%s %.0f %.0f\n", outcome, $1, $2 + $3 }' "$dir/time.$name" >"$dir/$name"
		echo "step $name: $outcome after $(cut -d' ' -f2 "$dir/$name") s" >&3
		[ $outcome = passed ] || all=FAILED
		if [ $all = FAILED ] && [ -z "$go_on" ]; then break; fi
	done
	[ $all = passed ]
}

changed='none: changed files in the checkout'

# A checkout with changes has no commit, so its run counts for no release.
commit_of_checkout() {
	if git diff --quiet HEAD -- . ":!$page"; then git rev-parse HEAD; else echo "$changed"; fi
}

if [ -n "$page" ]; then
	commit=$(commit_of_checkout)
	sed -n '/^<!-- run: begin/,/^<!-- run: end/p' "$page" >"$dir/before"
	if [ "$commit" != "$changed" ] && grep -qF "| commit | \`$commit\` |" "$dir/before"; then
		while read -r name took used; do
			echo "passed $took $used" >"$dir/$name"
			echo "step $name: passed before"
		done < <(awk '/^\| `/ { if ($4 != "passed,") exit; if ($5 >= 60) print substr($2, 2, length($2) - 2), $5, $7 }' "$dir/before")
	fi
fi

began=$SECONDS result=passed
for group; do
	if [ -n "$ended" ] || { [ $result = FAILED ] && [ -z "$go_on" ]; }; then break; fi
	if [[ $group != *+* ]]; then
		chain "$group" || result=FAILED
		continue
	fi
	chains=()
	for names in ${group//+/ }; do
		# In the background a shell ignores the terminal's signal.
		(trap - INT && chain "$names" beside) &
		chains+=($!)
	done
	for pid in "${chains[@]}"; do wait "$pid" || result=FAILED; done
done
[ -z "$ended" ] || result=FAILED

printf '\n%7s  %17s  %-7s  %s\n' seconds 'processor seconds' outcome step
processor=0
for group; do
	for name in ${group//[+,]/ }; do
		outcome='not run' took=0 used=0
		[ ! -e "$dir/$name" ] || read -r outcome took used <"$dir/$name"
		processor=$((processor + used))
		[[ $group != *+* ]] || beside=' (side by side)'
		printf '%7s  %17s  %-7s  %s\n' "$took" "$used" "$outcome" "$name${beside:-}"
		unset beside
		echo "| \`$name\` | $outcome, $took s, $used s of processor |" >>"$dir/record"
	done
done
printf '%7s  %17s  %-7s  %s\n' $((SECONDS - began)) $processor $result 'all steps'
for said in "$dir"/said.*; do
	name=${said##*said.}
	if [ -e "$dir/$name" ] && grep -q '^FAILED' "$dir/$name"; then
		printf '\n%s failed:\n' "$name"
		# What a test says stands before its "FAIL" with -v, and after it without.
		{ grep -E -B8 -A6 -- '--- FAIL|^FAIL|panic:|fatal error:' "$said" || tail -n 10 "$said"; } | awk '!seen[$0]++' | tail -n 40
	fi
done

if [ -n "$page" ]; then
	[ "$(commit_of_checkout)" = "$commit" ] || commit=$changed
	{
		printf '| %s |\n' 'what | value' '--- | ---' "date | $(date -u +%F)" "commit | \`$commit\`" "result | $result"
		cat "$dir/record"
	} >"$dir/page"
	sed -i -e '/^<!-- run: begin/,/^<!-- run: end/{//!d}' -e "/^<!-- run: begin/r $dir/page" "$page"
fi
[ $result = passed ]
