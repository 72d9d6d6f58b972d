# A small C project: cloned, built, changed, built again, committed, merged, packed, pushed and cloned again.
exec 2>&1
part() { echo "== $*"; }
# The times of files are the server's, and a guest's clock stays behind it on a busy machine: make says so.
make() { command make "$@" 2>&1 | { grep -v -e ' in the future$' -e 'Clock skew detected' || true; }; }

part clone
git clone --quiet --no-local "$INPUT/project.git" work
cd work
git status --short --branch

part build
make -j2 | sort
./program
git status --short
make

part 'a header changes: what includes it is built again, and nothing else'
sed -i 's/^#define WEIGHT_3 .*/#define WEIGHT_3 333/' include/part3.h
make | sort
./program
make
git status --short

part commit
git commit --quiet --all --message 'Part 3 weighs more'
git fsck --full --strict
git log --format='%H %s'

part 'branch, move, remove, merge, rebase'
git checkout --quiet -b side HEAD~2
git mv source/part1.c source/first.c
sed -i 's,source/part1\.o,source/first.o,' Makefile
git rm --quiet OLD
git commit --quiet --all --message 'Part 1 is the first'
echo 'forgotten' >untracked
git stash --quiet --include-untracked
git stash pop --quiet
git status --short
rm untracked
git checkout --quiet main
git merge --quiet --no-edit side
git checkout --quiet -b based HEAD~1
git rebase --quiet side
git checkout --quiet main
git log --graph --all --format='%H %s'
make -j2 | sort
./program
md5sum program source/*.o

part gc
git gc --quiet
git fsck --full --strict
git count-objects -v
git status --short

part 'push and clone again, with hard links'
git init --quiet --bare ../pushed.git
git push --quiet --all ../pushed.git
git clone --quiet ../pushed.git ../again
git -C ../again fsck --full --strict
diff -r --exclude=.git --exclude='*.o' --exclude='*.d' --exclude=program . ../again

part clean
git clean --quiet -dfx
git status --short --ignored
cd ..
# Links of directories are compared when all is flushed: on its way a subdirectory may be counted twice.
find . -type d -printf '%y %m - %P\n' -o -printf '%y %m %n %P\n' | sort
