# Everything a user can see of a tree, a line each, in the order of the names: kind, mode, links, owner, group, size, time
# of the last change to the nanosecond, target; and the contents of every file. Sizes of directories are the file system's
# own business.
find . -type d -printf '%P\t%y\t%m\t%n\t%U\t%G\t-\t%T@\n' -o -printf '%P\t%y\t%m\t%n\t%U\t%G\t%s\t%T@\t%l\n' | sort
find . -type f -print0 | sort -z | xargs -0 -r -n 500 md5sum
