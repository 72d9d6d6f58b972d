# Before every workload: the same everywhere, so that what a workload prints and leaves is the same everywhere.
# INPUT: what was made beforehand, on the local file system. The workload begins in an empty directory of its own.
set -euo pipefail
# Of a make that runs these tests.
unset MAKEFLAGS MAKELEVEL MFLAGS MAKEOVERRIDES
umask 022
export LC_ALL=C TZ=UTC HOME=/nonexistent
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_AUTHOR_DATE='2020-02-02 02:02:02 +0000'
export GIT_COMMITTER_NAME=c GIT_COMMITTER_EMAIL=c@example.org GIT_COMMITTER_DATE='2020-02-03 03:03:03 +0000'
# Packs depend on how many threads look for deltas; nothing is tidied in the background.
export GIT_CONFIG_COUNT=5
export GIT_CONFIG_KEY_0=pack.threads GIT_CONFIG_VALUE_0=1
export GIT_CONFIG_KEY_1=gc.auto GIT_CONFIG_VALUE_1=0
export GIT_CONFIG_KEY_2=init.defaultBranch GIT_CONFIG_VALUE_2=main
export GIT_CONFIG_KEY_3=gc.pruneExpire GIT_CONFIG_VALUE_3=now
export GIT_CONFIG_KEY_4=core.fsync GIT_CONFIG_VALUE_4=all
