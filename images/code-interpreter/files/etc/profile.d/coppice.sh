# A login shell starts from the system's PATH; programs of `pip install` go to ~/.local/bin.
case ":$PATH:" in
*":$HOME/.local/bin:"*) ;;
*) PATH=$HOME/.local/bin:$PATH ;;
esac
