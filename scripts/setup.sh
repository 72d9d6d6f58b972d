#!/usr/bin/env bash
# Installs the Debian packages that are missing, or says which, why, and how.
#   scripts/setup.sh run    what building and serving needs
#   scripts/setup.sh test   that, and what the tests use as real parts
#   scripts/setup.sh cluster  that, and what make cluster needs
#   scripts/setup.sh deb    what building and trying the package needs
set -euo pipefail

packages=(
    "cc:gcc:links Rust programs"
    "make:make:runs this"
    "protoc:protobuf-compiler:compiles the messages of etcd"
    "/usr/include/google/protobuf/descriptor.proto:libprotobuf-dev:messages that those import"
)
if [ "${1:-run}" = test ]; then
    packages+=(
        "nfs-ls:libnfs-utils:a real NFS client in user space"
        "linux.uml:user-mode-linux:boots the lab's NAS and client"
        "exportfs:nfs-kernel-server:the lab's NAS"
        "mount.nfs:nfs-common:the lab's client"
        "rpcbind:rpcbind:the lab's NAS"
        "kmod:kmod:loads the lab's modules"
        "ip:iproute2:the labs' networks"
        "mkfs.ext4:e2fsprogs:the lab's disks"
        "ganesha.nfsd:nfs-ganesha:another real NAS, in user space"
        "/usr/lib/*/ganesha/libfsalvfs.so:nfs-ganesha-vfs:its directory back end"
        "unshare:util-linux:namespaces for it"
        "openssl:openssl:makes the lab's files"
        "setpriv:util-linux:ends the lab with its test"
        "fusermount3:fuse3:mounts for somebody who is not root"
        "python3:python3:a reader through mmap in another process"
        "mpirun.openmpi:openmpi-bin:starts the bench on many ranks"
        "mpirun.mpich:mpich:another one that does"
        "srun:slurm-wlm:a batch system that does"
        "munged:munge:its authentication"
        "sshd:openssh-server:starts the bench on other hosts"
        "ssh:openssh-client:its other end"
        "git:git:a workload through the tier"
        "sqlite3:sqlite3:another one"
        "rsync:rsync:another one"
        "/usr/bin/aws:awscli:an S3 client"
        "/usr/bin/s3cmd:s3cmd:another one"
        "/usr/bin/rclone:rclone:another one"
        "curl:curl:another one, over TLS"
        "/usr/lib/python3*/ensurepip:python3-venv:a place for boto3"
        "chromium:chromium:opens the bench's page"
        "etcd:etcd-server:what the nodes of a cluster coordinate on"
        "etcdctl:etcd-client:compacts it, saves it and restores it"
        "fio:fio:measures the disks of a cluster's caches"
        "mold:mold:links the tests in seconds"
        "/usr/lib/*/faketime/libfaketimeMT.so.1:faketime:sets the wall clock of one process"
        "go:golang-go:builds MinIO and fake-gcs-server"
        "npm:npm:installs Azurite"
    )
fi
if [ "${1:-run}" = cluster ]; then
    packages+=("etcd:etcd-server:what the nodes of a cluster coordinate on")
fi
if [ "${1:-run}" = deb ]; then
    packages+=(
        "debootstrap:debootstrap:a bare Debian to install the package in"
        "linux.uml:user-mode-linux:boots that"
    )
fi

# Programs that no Debian package has: built from their Go modules, once.
go_tool() {
    local program=$1 module=$2 what=$3
    local tools="${HOME:-/root}/.cache/forebay-tools/bin"
    if command -v "$program" >/dev/null || [ -x "$tools/$program" ]; then
        return
    fi
    echo "setup: building $program ($what); this takes some minutes"
    GOBIN="$tools" GOFLAGS=-modcacherw go install "$module" >/dev/null 2>&1 ||
        echo "setup: $program could not be built; tests that need it will say \"not run\""
}

# As udev has it; where there is none it may be root's alone, and nobody else could mount.
if [ "${1:-run}" = test ] && [ "$(id -u)" = 0 ] && [ -c /dev/fuse ]; then
    chmod 666 /dev/fuse
fi

# Tools of cargo's that no Debian package has. Without optimisation: they run for seconds.
cargo_tool() {
    local tools="${HOME:-/root}/.cache/forebay-tools"
    if command -v "$1" >/dev/null || [ -x "$tools/bin/$1" ]; then
        return
    fi
    echo "setup: building $1 $2 ($3); this takes some minutes"
    CARGO_TARGET_DIR="$tools/target" cargo install --locked --debug --quiet --root "$tools" "$1@$2" ||
        echo "setup: $1 could not be built; what needs it will say \"not run\""
    rm -rf "$tools/target"
}

missing=()
for entry in "${packages[@]}"; do
    IFS=: read -r program package why <<<"$entry"
    # A pattern stands for a file that is no program.
    if ! PATH="$PATH:/usr/sbin:/sbin" command -v "$program" >/dev/null && ! compgen -G "$program" >/dev/null; then
        echo "setup: $package is missing ($why)"
        missing+=("$package")
    fi
done
# Packages of Python that Debian has too old or not at all, each in a place of its own.
python_place() {
    local place="${XDG_CACHE_HOME:-$HOME/.cache}/forebay/$1"
    [ ! -x "$place/bin/python" ] || return 0
    echo "setup: making $place for $2"
    python3 -m venv "$place" && "$place/bin/pip" install --quiet --disable-pip-version-check "$2" || {
        rm -rf "$place"
        echo "setup: no $2; the test that needs it will say \"not run\""
    }
}

# Azure Blob Storage on this machine. No Debian package has it.
azurite() {
    local place="${XDG_CACHE_HOME:-$HOME/.cache}/forebay/azurite"
    [ ! -x "$place/node_modules/.bin/azurite-blob" ] || return 0
    echo "setup: making $place for Azurite (an emulator of Azure's blob store)"
    npm install --prefix "$place" --no-save --no-audit --no-fund --loglevel=error azurite@3.37.0 >/dev/null || {
        rm -rf "$place"
        echo "setup: no Azurite; tests that need it will say \"not run\""
    }
}

if [ ${#missing[@]} -eq 0 ]; then
    :
elif [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "setup: installing ${missing[*]}"
    apt-get update -qq
    # Servers that come along must not start on this machine: the lab runs its own.
    DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
else
    echo "setup: install them with: sudo apt-get install ${missing[*]}"
    if [ "${1:-run}" = run ]; then
        exit 1
    fi
    echo "setup: tests that need them will say \"not run\""
fi
if [ "${1:-run}" = deb ]; then
    cargo_tool cargo-deb 3.8.0 "makes the Debian package"
fi
if [ "${1:-run}" = test ]; then
    cargo_tool cargo-deny 0.20.2 "knows the licences of what is linked"
    # The SDK that most S3 programs are made with: Debian's is too old to send checksums by default.
    python_place boto3 "boto3[crt]==1.43.11"
    # Microsoft's, against our stand-in for its service.
    python_place azure-files "azure-storage-file-share==12.27.1"
    # Google's, against our stand-in for its store.
    python_place gcs "google-cloud-storage==3.4.0"
    azurite
    go_tool minio github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c "a real S3 store"
    go_tool fake-gcs-server github.com/fsouza/fake-gcs-server@v1.56.1 "an emulator of Google's store"
fi
