#!/bin/sh
# The discovery script of soak: what $SOAK_FOLDER/mode says is wrong with it.
cd "$SOAK_FOLDER" || exit 1
case $(cat mode) in
  fail)
    echo "the scheduler does not answer" >&2
    exit 3
    ;;
  slow) sleep 2 ;;
  garbage) echo "Warning: host 3 : has : colons" ;;
  stranger) echo "nosuchhost:2" ;;
  crowd)
    sed 's/:2/:3/' hosts
    exit
    ;;
  flap)
    # Every second poll leaves a host out; two in a row would be believed.
    if [ -e flapped ]; then
      rm flapped
    else
      : > flapped
      tail -n +2 hosts
      exit
    fi
    ;;
esac
cat hosts
