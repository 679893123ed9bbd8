"""python -m rocmforge"""

from rocmforge import main

main()
