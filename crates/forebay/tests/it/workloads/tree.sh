# tar and rsync of many small files, with links, modes, owners and times.
exec 2>&1
pack() {
    # Access times are not kept: they would be the reader's.
    tar --create --format=pax --pax-option=delete=atime,delete=ctime,exthdr.name=%d/%f --numeric-owner --sort=name --file "$@"
}
update() { rsync -aH --numeric-ids --itemize-changes --delete "$1/" "$2/" | sort; }

echo '== out of a tar archive'
tar --extract --preserve-permissions --numeric-owner --file "$INPUT/tree.tar"
tar --compare --numeric-owner --file "$INPUT/tree.tar"

echo '== into one'
pack packed.tar tree
cmp packed.tar "$INPUT/tree.tar"

echo '== a copy by rsync'
rsync -aH --numeric-ids tree/ copy
update tree copy
diff -r --no-dereference tree copy

echo '== changes, and rsync again'
perl -e '
    for my $path (glob("tree/d*/*7")) {
        open(my $f, ">>", $path) or die "$path: $!"; print $f "one line more\n"; close($f);
        utime(1600000000, 1600000000, $path) or die "$path: $!";
    }
    for my $path (glob("tree/d*/*3")) { unlink($path) or die "$path: $!" }
    for my $path (glob("tree/d*/*5")) { rename($path, "$path.renamed") or die "$path: $!" }
    for my $path (glob("tree/d*/*9")) { chmod(0640, $path) or die "$path: $!" }
'
mv tree/d000 tree/moved
chmod 2770 tree/d001
touch --date='2022-02-22 22:22:22.222222222' tree tree/*/
update tree copy
update tree copy
diff -r --no-dereference tree copy
rsync -aH --numeric-ids --checksum --itemize-changes --dry-run tree/ copy

echo '== thrown away'
mv copy away
rm -r away
rm packed.tar
# What is made in it last moves its time: under `back` once more when it is flushed.
touch --date='2022-02-22 22:22:22' .
ls
