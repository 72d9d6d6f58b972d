#!/bin/bash
# First process of a lab guest. The host's root is ours, read-only; what we write is in memory or in the shared directory.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp
mount -t proc none /proc
mount -t sysfs none /sys
for dir in /tmp /run /mnt /var/lib/nfs; do mount -t tmpfs none $dir; done
for word in $(cat /proc/cmdline); do
    case $word in lab_*=*) declare "$word" ;; esac
done
mkdir -p /mnt/lab
mount -t hostfs none /mnt/lab -o "$lab_shared"
exec 2>/mnt/lab/init.err
stty -F /dev/console raw -echo
mkdir -p /tmp/mod/lib/modules
ln -s "/usr/lib/uml/modules/$(uname -r)" "/tmp/mod/lib/modules/$(uname -r)"
ip link set lo up
ip addr add "$lab_address/24" dev vec0
ip link set vec0 up
ip route add default via "$lab_gateway"
touch /mnt/lab/ready
while IFS= read -r n; do
    (
        bash "/mnt/lab/$n.sh" >"/mnt/lab/$n.out" 2>"/mnt/lab/$n.err"
        echo $? >"/mnt/lab/$n.part"
        mv "/mnt/lab/$n.part" "/mnt/lab/$n.status"
    ) </dev/null &
done </dev/console
echo o >/proc/sysrq-trigger
