# SPDX-License-Identifier: Apache-2.0
# Copyright Authors of podweir
"""Make links of a page that lead out of docs, or to files that the site leaves
out, links into the repository."""

import posixpath
import re

LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s#]+)")
LEFT_OUT = (".json", ".jsonl", ".csv")


def on_page_markdown(markdown, page, config, files):
    base = posixpath.join("docs", posixpath.dirname(page.file.src_uri))

    def replace(match):
        target = posixpath.normpath(posixpath.join(base, match.group(1)))
        if target.startswith("docs/") and not target.endswith(LEFT_OUT):
            return match.group(1)
        return f"{config.repo_url}/blob/main/{target}"

    return LINK.sub(replace, markdown)
