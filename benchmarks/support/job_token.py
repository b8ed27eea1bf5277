"""The token of a benchmark's processes, which its children find in their environment."""

from __future__ import annotations

import os
import secrets

TOKEN = os.environ.setdefault("HEADRACE_BENCHMARK_TOKEN", secrets.token_urlsafe(32))
