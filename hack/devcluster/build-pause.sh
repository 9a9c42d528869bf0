#!/usr/bin/env bash
# Build the image of the container that holds a pod's namespaces: build-pause.sh ARCHIVE (0.7 MB, statically linked)
set -euo pipefail
archive=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export STORAGE_DRIVER=vfs
cat > "$work/pause.c" <<'C'
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
static void quit(int signal) { (void)signal; exit(0); }
int main(void) { signal(SIGTERM, quit); signal(SIGINT, quit); for (;;) pause(); }
C
gcc -static -O2 -o "$work/pause" "$work/pause.c"
printf 'FROM scratch\nCOPY pause /pause\nENTRYPOINT ["/pause"]\n' > "$work/Dockerfile"
buildah bud --isolation=chroot -q -t localhost/pause:1 "$work" >/dev/null
# The archive is renamed when it is complete, so that a killed build leaves no partial archive in the cache.
buildah push -q localhost/pause:1 "oci-archive:$work/pause.tar:localhost/pause:1"
mkdir -p "$(dirname "$archive")"
cp "$work/pause.tar" "$archive.part"
mv "$archive.part" "$archive"
buildah rmi localhost/pause:1 >/dev/null
